#include "trainer/chat_template/filters.h"

#include <string_view>

namespace gantry {

FilterFunction FindFilter(std::string_view name) {
  for (const auto find :
       {&FindTextFilter, &FindNumberFilter, &FindSequenceFilter, &FindSelectionFilter}) {
    const FilterFunction found = find(name);
    if (found != nullptr) return found;
  }
  return nullptr;
}

}  // namespace gantry
