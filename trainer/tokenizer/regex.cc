#include "trainer/tokenizer/regex.h"

#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/tokenizer/unicode.h"
#include "trainer/tokenizer/utf8.h"

namespace gantry {
namespace {

constexpr size_t kPatternBytesMax = 16 << 10;
// Per match. Patterns of published tokenizers need a few steps for each character of a match.
constexpr uint32_t kMatchStepsMax = 1'000'000;
constexpr uint32_t kHeapKibibytesMax = 64 << 10;
constexpr size_t kStackBytesMin = 32 << 10;
constexpr size_t kStackBytesMax = 4 << 20;

std::string ErrorText(int error) {
  PCRE2_UCHAR8 text[256];
  const int size = pcre2_get_error_message_8(error, text, sizeof(text));
  if (size < 0) return StrCat("error ", error);
  return std::string(reinterpret_cast<const char*>(text), static_cast<size_t>(size));
}

}  // namespace

struct RegexScratch::Impl {
  pcre2_match_data_8* match = nullptr;
  pcre2_match_context_8* context = nullptr;
  pcre2_jit_stack_8* stack = nullptr;
  std::string subject;
};

RegexScratch::RegexScratch() : impl_(std::make_unique<Impl>()) {
  impl_->match = pcre2_match_data_create_8(1, nullptr);
  impl_->context = pcre2_match_context_create_8(nullptr);
  impl_->stack = pcre2_jit_stack_create_8(kStackBytesMin, kStackBytesMax, nullptr);
  GANTRY_CHECK(impl_->match != nullptr && impl_->context != nullptr && impl_->stack != nullptr);
  pcre2_set_match_limit_8(impl_->context, kMatchStepsMax);
  pcre2_set_heap_limit_8(impl_->context, kHeapKibibytesMax);
  pcre2_jit_stack_assign_8(impl_->context, nullptr, impl_->stack);
}

RegexScratch::~RegexScratch() {
  pcre2_match_data_free_8(impl_->match);
  pcre2_match_context_free_8(impl_->context);
  pcre2_jit_stack_free_8(impl_->stack);
}

absl::StatusOr<std::unique_ptr<Regex>> Regex::Create(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return InvalidArgument("a regular expression of ", pattern.size(), " bytes; at most ",
                           kPatternBytesMax, " are taken");
  }
  GANTRY_ASSIGN_OR_RETURN(const std::string translated, TranslateRegex(pattern));
  pcre2_compile_context_8* const context = pcre2_compile_context_create_8(nullptr);
  GANTRY_CHECK(context != nullptr);
  pcre2_set_newline_8(context, PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code_8* const code =
      pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(translated.data()), translated.size(),
                      PCRE2_UTF | PCRE2_UCP, &error, &offset, context);
  pcre2_compile_context_free_8(context);
  if (code == nullptr) {
    return InvalidArgument("no regular expression that can be matched: ", ErrorText(error),
                           " at byte ", offset, " of what is given to PCRE2");
  }
  // Without executable memory matching is interpreted, and slower.
  static_cast<void>(pcre2_jit_compile_8(code, PCRE2_JIT_COMPLETE));
  return std::unique_ptr<Regex>(new Regex(code));
}

Regex::~Regex() { pcre2_code_free_8(static_cast<pcre2_code_8*>(code_)); }

std::string_view Regex::Subject(std::string_view text, RegexScratch& scratch) const {
  return StandInsForPcre2(text, scratch.impl_->subject) ? scratch.impl_->subject : text;
}

absl::StatusOr<bool> Regex::FindFrom(std::string_view subject, size_t at, RegexScratch& scratch,
                                     Match& match) const {
  const RegexScratch::Impl& memory = *scratch.impl_;
  // Takes the compiled form by itself where there is one.
  const int result = pcre2_match_8(static_cast<pcre2_code_8*>(code_),
                                   reinterpret_cast<PCRE2_SPTR8>(subject.data()), subject.size(),
                                   at, PCRE2_NO_UTF_CHECK, memory.match, memory.context);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    return ResourceExhausted("the tokenizer's regular expression gives up at byte ", at,
                             " of a text of ", subject.size(), " bytes: ", ErrorText(result));
  }
  const PCRE2_SIZE* const range = pcre2_get_ovector_pointer_8(memory.match);
  // \K, which could make them cross, is refused.
  GANTRY_CHECK(range[0] <= range[1] && range[0] >= at);
  match = {range[0], range[1]};
  return true;
}

size_t Regex::After(std::string_view subject, size_t at) {
  return at >= subject.size() ? at + 1 : at + CharacterAt(subject, at).size;
}

}  // namespace gantry
