#include "base/bytes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/strings.h"

namespace gantry {
namespace {

// Wide enough for any int64 times any unit.
__extension__ using Wide = unsigned __int128;

struct Unit {
  std::string_view name;  // lower case
  uint64_t bytes;
};

constexpr std::array<Unit, 10> kUnits = {{
    {"", 1},
    {"b", 1},
    {"kib", uint64_t{1} << 10},
    {"mib", uint64_t{1} << 20},
    {"gib", uint64_t{1} << 30},
    {"tib", uint64_t{1} << 40},
    {"kb", 1'000},
    {"mb", 1'000'000},
    {"gb", 1'000'000'000},
    {"tb", 1'000'000'000'000},
}};

constexpr size_t kDigitsMax = 18;  // 10^18 fits 64 bits

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Splits the leading decimal digits off `text`.
std::string_view TakeDigits(std::string_view& text) {
  const auto* end = std::find_if_not(text.begin(), text.end(), IsDigit);
  const std::string_view digits = text.substr(0, static_cast<size_t>(end - text.begin()));
  text.remove_prefix(digits.size());
  return digits;
}

uint64_t DigitsValue(std::string_view digits) {
  uint64_t value = 0;
  for (const char c : digits) value = value * 10 + static_cast<uint64_t>(c - '0');
  return value;
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

const Unit* FindUnit(std::string_view name) {
  const std::string lower = LowerCase(name);
  const auto* unit = std::find_if(kUnits.begin(), kUnits.end(),
                                  [&](const Unit& candidate) { return candidate.name == lower; });
  return unit == kUnits.end() ? nullptr : unit;
}

}  // namespace

std::string Bytes::ToString() const {
  const char* const sign = count_ < 0 ? "-" : "";
  const uint64_t magnitude =
      count_ < 0 ? uint64_t{0} - static_cast<uint64_t>(count_) : static_cast<uint64_t>(count_);
  if (magnitude < 1024) return StrCat(sign, magnitude, " B");
  constexpr std::array<const char*, 6> kNames = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  // Tenths of the unit, rounded; a value that rounds up to 1024.0 is 1.0 of the next unit.
  size_t i = 0;
  uint64_t unit = 1024;
  const auto tenths = [&] {
    return static_cast<uint64_t>((Wide{magnitude} * 10 + unit / 2) / unit);
  };
  while (tenths() >= 10240 && i + 1 < kNames.size()) {
    unit *= 1024;
    ++i;
  }
  return StrCat(sign, tenths() / 10, ".", tenths() % 10, " ", kNames[i]);
}

absl::StatusOr<Bytes> ParseBytes(std::string_view text) {
  std::string_view rest = text;
  if (rest.starts_with('-')) return InvalidArgument("negative byte quantity '", text, "'");
  const std::string_view whole = TakeDigits(rest);
  std::string_view fraction;
  bool well_formed = !whole.empty();
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    fraction = TakeDigits(rest);
    well_formed = well_formed && !fraction.empty() && fraction.size() <= kDigitsMax;
  }
  while (!fraction.empty() && fraction.back() == '0') fraction.remove_suffix(1);
  while (rest.size() > 1 && rest.front() == ' ') rest.remove_prefix(1);
  const Unit* unit = FindUnit(rest);
  if (!well_formed || unit == nullptr || (unit->bytes == 1 && !fraction.empty())) {
    return InvalidArgument("bad byte quantity '", text,
                           "': expected for example 512, 128MiB, 1.5 GiB or 2GB");
  }
  const size_t leading_zeros = std::min(whole.find_first_not_of('0'), whole.size());
  const std::string_view significant = whole.substr(leading_zeros);
  constexpr Wide kMax = std::numeric_limits<int64_t>::max();
  // 19 digits stay below 10^19, which 64 unsigned bits hold.
  if (significant.size() > kDigitsMax + 1) {
    return InvalidArgument("byte quantity '", text, "' overflows 64 bits");
  }
  Wide count = Wide{DigitsValue(significant)} * unit->bytes;
  if (!fraction.empty()) {
    uint64_t scale = 1;
    for (size_t i = 0; i < fraction.size(); ++i) scale *= 10;
    count += Wide{DigitsValue(fraction)} * unit->bytes / scale;
  }
  if (count > kMax) return InvalidArgument("byte quantity '", text, "' overflows 64 bits");
  return Bytes(static_cast<int64_t>(count));
}

}  // namespace gantry
