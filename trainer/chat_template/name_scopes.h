// Which names a scope hides before it sets them. Jinja decides where a name lives before it
// renders: a name that a scope sets, and does not read before at that level, is its own from the
// beginning, so blocks within it that read the name too early find nothing, whatever the context
// has.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_NAME_SCOPES_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_NAME_SCOPES_H_

#include "trainer/chat_template/syntax.h"

namespace gantry {

// Fills in the `hidden` names of the template, its macros and its statements.
void FindHiddenNames(TemplateSyntax& syntax);

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_NAME_SCOPES_H_
