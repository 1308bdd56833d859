// Regular expressions of tokenizer files: written for Oniguruma, matched by PCRE2's compiler.
//
// Patterns whose parts mean the same for both are taken, those that differ only in writing are
// rewritten, and all others are refused. Characters that the two classify differently are matched
// through stand-ins (unicode.h), so that matches are those of the reference implementation.
#ifndef GANTRY_TRAINER_TOKENIZER_REGEX_H_
#define GANTRY_TRAINER_TOKENIZER_REGEX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gantry {

// The pattern as PCRE2 with UTF and UCP must be given it. Errors: kInvalidArgument, naming the
// part that is not taken.
absl::StatusOr<std::string> TranslateRegex(std::string_view pattern);

// Working memory of matches: one thread at a time, for any expression.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

// Immutable and thread-safe.
class Regex {
 public:
  struct Match {
    size_t begin;
    size_t end;
  };

  // Errors: kInvalidArgument (not an expression, or TranslateRegex refuses it, or it is longer
  // than 16 KiB).
  static absl::StatusOr<std::unique_ptr<Regex>> Create(std::string_view pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // Calls `found` for each match in `text`, from left to right, as Oniguruma's iterator does:
  // an empty match right after a match is none. REQUIRES: valid UTF-8.
  // Errors: kResourceExhausted when matching needs more steps or stack than the limits.
  template <typename Found>
  absl::Status ForEachMatch(std::string_view text, RegexScratch& scratch, Found found) const {
    const std::string_view subject = Subject(text, scratch);
    size_t at = 0;
    size_t last_end = kNone;
    while (at <= subject.size()) {
      Match match;
      const absl::StatusOr<bool> is_found = FindFrom(subject, at, scratch, match);
      if (!is_found.ok()) return is_found.status();
      if (!*is_found) break;
      if (match.begin == match.end && match.end == last_end) {
        at = After(subject, match.end);
        continue;
      }
      found(match);
      last_end = match.end;
      at = match.begin == match.end ? After(subject, match.end) : match.end;
    }
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  explicit Regex(void* code) : code_(code) {}

  // The text to match in: `text` itself, or a copy in `scratch` with stand-ins.
  std::string_view Subject(std::string_view text, RegexScratch& scratch) const;
  absl::StatusOr<bool> FindFrom(std::string_view subject, size_t at, RegexScratch& scratch,
                                Match& match) const;
  // The beginning of the character after the one at `at`.
  static size_t After(std::string_view subject, size_t at);

  void* const code_;  // pcre2_code_8
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_TOKENIZER_REGEX_H_
