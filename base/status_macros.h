// Early-return macros for absl::Status and absl::StatusOr.
//
//   GANTRY_RETURN_IF_ERROR(file->Sync());
//   GANTRY_ASSIGN_OR_RETURN(auto pool, SlotPool::Create(options));
//
// Both evaluate their expression once and return its status from the enclosing function, which may
// return absl::Status or any absl::StatusOr<T>.
#ifndef GANTRY_BASE_STATUS_MACROS_H_
#define GANTRY_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define GANTRY_RETURN_IF_ERROR(expression)      \
  do {                                          \
    absl::Status gantry_status_ = (expression); \
    if (!gantry_status_.ok()) [[unlikely]]      \
      return gantry_status_;                    \
  } while (false)

#define GANTRY_ASSIGN_OR_RETURN(declaration, expression) \
  GANTRY_ASSIGN_OR_RETURN_(GANTRY_CONCAT_(gantry_result_, __LINE__), declaration, expression)

#define GANTRY_CONCAT_INNER_(a, b) a##b
#define GANTRY_CONCAT_(a, b) GANTRY_CONCAT_INNER_(a, b)
#define GANTRY_ASSIGN_OR_RETURN_(result, declaration, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) [[unlikely]]                                  \
    return std::move(result).status();                            \
  declaration = *std::move(result)

#endif  // GANTRY_BASE_STATUS_MACROS_H_
