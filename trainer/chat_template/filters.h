// Jinja's filters: `value|name(arguments)`, with the tojson of transformers.
//
// safe and escape make plain text: nothing is escaped by itself here, so nothing is marked either.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_FILTERS_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_FILTERS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "trainer/chat_template/arguments.h"
#include "trainer/chat_template/render_state.h"
#include "trainer/chat_template/value.h"

namespace gantry {

// Errors: kInvalidArgument where Python raises; kResourceExhausted. The iterator that it may give
// is used while the state lives.
using FilterFunction = absl::StatusOr<Value> (*)(RenderState& state, const Value& value,
                                                 const Arguments& arguments);

// Null where there is no such filter. Thread-safe.
FilterFunction FindFilter(std::string_view name);

// The parts of the table.
FilterFunction FindTextFilter(std::string_view name);
FilterFunction FindNumberFilter(std::string_view name);
FilterFunction FindSequenceFilter(std::string_view name);
FilterFunction FindSelectionFilter(std::string_view name);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_FILTERS_H_
