// Byte quantities: `Bytes` is a signed 64-bit count with checked arithmetic (overflow aborts).
//
//   Bytes budget = 128_MiB;
//   budget.count() / slot_bytes.count()
#ifndef GANTRY_BASE_BYTES_H_
#define GANTRY_BASE_BYTES_H_

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/check.h"

namespace gantry {

class Bytes {
 public:
  constexpr explicit Bytes(int64_t count) : count_(count) {}
  static constexpr Bytes Zero() { return Bytes(0); }

  constexpr int64_t count() const { return count_; }
  constexpr auto operator<=>(const Bytes&) const = default;

  friend Bytes operator+(Bytes a, Bytes b) {
    int64_t sum = 0;
    GANTRY_CHECK(!__builtin_add_overflow(a.count_, b.count_, &sum)) << a << " + " << b;
    return Bytes(sum);
  }
  friend Bytes operator-(Bytes a, Bytes b) {
    int64_t difference = 0;
    GANTRY_CHECK(!__builtin_sub_overflow(a.count_, b.count_, &difference)) << a << " - " << b;
    return Bytes(difference);
  }
  friend Bytes operator*(Bytes a, int64_t factor) {
    int64_t product = 0;
    GANTRY_CHECK(!__builtin_mul_overflow(a.count_, factor, &product)) << a << " * " << factor;
    return Bytes(product);
  }
  friend Bytes operator*(int64_t factor, Bytes a) { return a * factor; }
  Bytes& operator+=(Bytes other) { return *this = *this + other; }
  Bytes& operator-=(Bytes other) { return *this = *this - other; }

  // "128.0 MiB" with binary units, exact bytes below 1 KiB.
  std::string ToString() const;
  friend std::ostream& operator<<(std::ostream& out, Bytes bytes) {
    return out << bytes.ToString();
  }

 private:
  int64_t count_;
};

// Parses "512", "128MiB", "1.5 GiB", "2GB" (decimal units without the i). Case-insensitive.
// Errors: kInvalidArgument for anything else, a negative or an overflowing quantity.
absl::StatusOr<Bytes> ParseBytes(std::string_view text);

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr int64_t CeilDiv(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

inline namespace literals {
constexpr Bytes operator""_B(unsigned long long n) { return Bytes(static_cast<int64_t>(n)); }
constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes(static_cast<int64_t>(n) << 10);
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return Bytes(static_cast<int64_t>(n) << 20);
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return Bytes(static_cast<int64_t>(n) << 30);
}
}  // namespace literals

}  // namespace gantry

#endif  // GANTRY_BASE_BYTES_H_
