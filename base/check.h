// Checks for programmer errors: always on, print the expression, its values and what the caller
// streams, then abort. For operating errors (memory, files, user input) use absl::Status.
//
//   GANTRY_CHECK(slot.valid()) << "block " << id << " state " << state;
//   GANTRY_CHECK_EQ(offset % kAlignment, 0);
//   GANTRY_DCHECK_LT(index, size);            // only in builds without NDEBUG
#ifndef GANTRY_BASE_CHECK_H_
#define GANTRY_BASE_CHECK_H_

#include <sstream>
#include <string>
#include <type_traits>

namespace gantry {
namespace check_internal {

// Collects the message; its destructor writes it to stderr and aborts.
class FatalMessage {
 public:
  FatalMessage(const char* file, int line, const char* expression);
  [[noreturn]] ~FatalMessage();
  FatalMessage(const FatalMessage&) = delete;
  FatalMessage& operator=(const FatalMessage&) = delete;

  template <typename T>
  FatalMessage& operator<<(const T& value) {
    stream_ << value;
    return *this;
  }

 private:
  std::ostringstream stream_;
};

// Makes the streamed expression void so that both arms of ?: agree.
struct Voidify {
  void operator&(const FatalMessage&) const {}
};

// Streams a value; enums print as their number.
template <typename T>
decltype(auto) Printable(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<long long>(value);
  } else {
    return value;
  }
}

}  // namespace check_internal
}  // namespace gantry

#define GANTRY_CHECK(condition)                       \
  (condition) ? static_cast<void>(0)                  \
              : ::gantry::check_internal::Voidify() & \
                    ::gantry::check_internal::FatalMessage(__FILE__, __LINE__, #condition)

// The operands are evaluated once when the check holds and once more to print them when not.
#define GANTRY_CHECK_OP_(a, op, b)                                                               \
  ((a)op(b)) ? static_cast<void>(0)                                                              \
             : ::gantry::check_internal::Voidify() &                                             \
                   ::gantry::check_internal::FatalMessage(__FILE__, __LINE__, #a " " #op " " #b) \
                       << "(" << ::gantry::check_internal::Printable(a) << " against "           \
                       << ::gantry::check_internal::Printable(b) << ") "

#define GANTRY_CHECK_EQ(a, b) GANTRY_CHECK_OP_(a, ==, b)
#define GANTRY_CHECK_NE(a, b) GANTRY_CHECK_OP_(a, !=, b)
#define GANTRY_CHECK_LT(a, b) GANTRY_CHECK_OP_(a, <, b)
#define GANTRY_CHECK_LE(a, b) GANTRY_CHECK_OP_(a, <=, b)
#define GANTRY_CHECK_GT(a, b) GANTRY_CHECK_OP_(a, >, b)
#define GANTRY_CHECK_GE(a, b) GANTRY_CHECK_OP_(a, >=, b)

// Aborts when `status` (absl::Status) is not OK: for calls that cannot fail by construction.
#define GANTRY_CHECK_OK(status)                                                 \
  do {                                                                          \
    const auto& gantry_check_status_ = (status);                                \
    GANTRY_CHECK(gantry_check_status_.ok()) << gantry_check_status_.ToString(); \
  } while (false)

#ifdef NDEBUG
#define GANTRY_DCHECK(condition) GANTRY_CHECK(true || (condition))
#define GANTRY_DCHECK_LT(a, b) GANTRY_DCHECK((a) < (b))
#define GANTRY_DCHECK_EQ(a, b) GANTRY_DCHECK((a) == (b))
#else
#define GANTRY_DCHECK(condition) GANTRY_CHECK(condition)
#define GANTRY_DCHECK_LT(a, b) GANTRY_CHECK_LT(a, b)
#define GANTRY_DCHECK_EQ(a, b) GANTRY_CHECK_EQ(a, b)
#endif

#endif  // GANTRY_BASE_CHECK_H_
