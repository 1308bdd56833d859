// A parsed template. Plain data, immutable once parsed.
#ifndef GANTRY_TRAINER_CHAT_TEMPLATE_SYNTAX_H_
#define GANTRY_TRAINER_CHAT_TEMPLATE_SYNTAX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/chat_template/lexer.h"
#include "trainer/chat_template/value.h"

namespace gantry {

struct Expression;
using ExpressionPointer = std::unique_ptr<Expression>;

// f(positional..., *spread, name=value..., **spread_named)
struct CallSyntax {
  std::vector<ExpressionPointer> positional;
  std::vector<std::pair<std::string, ExpressionPointer>> named;
  ExpressionPointer spread;        // or null
  ExpressionPointer spread_named;  // or null
};

struct Expression {
  enum class Kind : uint8_t {
    kConstant,
    kName,         // name
    kTuple,        // operands
    kList,         // operands
    kDict,         // operands: key, value, key, value, ...
    kAttribute,    // operands[0].name
    kItem,         // operands[0][operands[1]]
    kSlice,        // operands[0][1:2:3], each of the last three may be null
    kCall,         // operands[0](call)
    kFilter,       // operands[0]|name(call); operands[0] is null at the head of a filter block
    kTest,         // operands[0] is name(call)
    kNegative,     // -operands[0]
    kPositive,     // +operands[0]
    kNot,          // not operands[0]
    kAnd,          // operands[0] and operands[1]
    kOr,           // operands[0] or operands[1]
    kBinary,       // operands[0] name operands[1]
    kConcatenate,  // operands[0] ~ operands[1] ~ ...
    kCompare,      // operands[0] operators[0] operands[1] operators[1] operands[2] ...
    kConditional,  // operands[0] if operands[1] else operands[2], which may be null
  };
  Kind kind;
  TemplatePosition at;
  int depth = 1;  // of the tree
  std::string name = {};
  Value constant = {};
  std::vector<ExpressionPointer> operands = {};
  std::vector<std::string> operators = {};
  CallSyntax call = {};
};

// What is assigned to: a name, an attribute of a namespace, or several of them.
struct Target {
  enum class Kind : uint8_t { kName, kAttribute, kTuple };
  Kind kind;
  TemplatePosition at;
  std::string name = {};
  std::string attribute = {};
  std::vector<Target> items = {};
};

struct Parameter {
  std::string name;
  ExpressionPointer default_value;  // or null
};

struct Statement;

// A macro, or the body of a call block.
struct MacroSyntax {
  std::string name;  // empty: of a call block
  TemplatePosition at;
  std::vector<Parameter> parameters;
  std::vector<Statement> body;
  // Whether the body, or a default, names these.
  bool uses_caller = false;
  bool uses_named = false;               // kwargs
  bool uses_positional = false;          // varargs
  std::vector<std::string> hidden = {};  // see name_scopes.h
};

struct Statement {
  enum class Kind : uint8_t {
    kText,         // text
    kPrint,        // expressions
    kIf,           // expressions[i] for branches[i]; one more branch is the else
    kFor,          // target in expressions[0] [if expressions[1]]: branches[0], else branches[1]
    kSet,          // target = expressions[0]
    kSetBlock,     // target = branches[0] [through expressions[0]]
    kMacro,        // macro
    kCallBlock,    // expressions[0] is the call, macro its caller
    kFilterBlock,  // branches[0] through expressions[0]
    kWith,         // targets = expressions: branches[0]
    kGeneration,   // branches[0], of which the output is a span
    kBreak,
    kContinue,
  };
  Kind kind;
  TemplatePosition at;
  std::string text = {};
  std::vector<ExpressionPointer> expressions = {};  // null where one is left out
  std::vector<Target> targets = {};
  std::vector<std::vector<Statement>> branches = {};
  std::unique_ptr<MacroSyntax> macro = {};
  bool recursive = false;                             // of a for
  std::vector<std::vector<std::string>> hidden = {};  // of each branch, see name_scopes.h
};

struct TemplateSyntax {
  std::vector<Statement> body;
  bool has_generation = false;
  std::vector<std::string> hidden = {};  // see name_scopes.h
};

}  // namespace gantry

#endif  // GANTRY_TRAINER_CHAT_TEMPLATE_SYNTAX_H_
