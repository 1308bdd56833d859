#include "trainer/logging/testing/event_reader.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "base/strings.h"
#include "trainer/logging/crc32c.h"

namespace gantry {
namespace {

uint64_t LittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // of numbers, as bits
  std::string_view bytes;  // of messages and texts
};

absl::StatusOr<uint64_t> TakeVarint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7fU) << shift;
    if (byte < 0x80) return value;
  }
  return DataLoss("a number does not end");
}

absl::StatusOr<Field> TakeField(std::string_view& bytes) {
  GANTRY_ASSIGN_OR_RETURN(const uint64_t key, TakeVarint(bytes));
  Field field{.number = key >> 3U, .value = 0, .bytes = {}};
  size_t length = 0;
  switch (key & 7U) {
    case 0: {
      GANTRY_ASSIGN_OR_RETURN(field.value, TakeVarint(bytes));
      return field;
    }
    case 1:
      length = 8;
      break;
    case 2: {
      GANTRY_ASSIGN_OR_RETURN(length, TakeVarint(bytes));
      break;
    }
    case 5:
      length = 4;
      break;
    default:
      return DataLoss("wire type ", key & 7U);
  }
  if (length > bytes.size()) return DataLoss("a field of ", length, " bytes is cut short");
  field.bytes = bytes.substr(0, length);
  if ((key & 7U) != 2) field.value = LittleEndian(field.bytes);
  bytes.remove_prefix(length);
  return field;
}

absl::StatusOr<std::vector<Field>> FieldsIn(std::string_view bytes) {
  std::vector<Field> fields;
  while (!bytes.empty()) {
    GANTRY_ASSIGN_OR_RETURN(const Field field, TakeField(bytes));
    fields.push_back(field);
  }
  return fields;
}

absl::Status Unexpected(std::string_view message, const Field& field) {
  return DataLoss("field ", field.number, " of ", message, " is not expected");
}

absl::StatusOr<std::string> TextIn(std::string_view tensor) {
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Field> fields, FieldsIn(tensor));
  std::string text;
  for (const Field& field : fields) {
    if (field.number == 8) {
      text = std::string(field.bytes);
    } else if (!(field.number == 1 && field.value == 7) &&
               !(field.number == 2 && field.bytes == "\x12\x02\x08\x01")) {
      return Unexpected("a tensor", field);
    }
  }
  return text;
}

absl::Status ReadValue(std::string_view bytes, ReadEvent& event) {
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Field> fields, FieldsIn(bytes));
  std::string tag;
  std::optional<float> scalar;
  std::optional<std::string> text;
  bool is_text = false;
  for (const Field& field : fields) {
    if (field.number == 1) {
      tag = std::string(field.bytes);
    } else if (field.number == 2) {
      scalar = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    } else if (field.number == 8) {
      GANTRY_ASSIGN_OR_RETURN(text, TextIn(field.bytes));
    } else if (field.number == 9 && field.bytes == "\x0a\x06\x0a\x04text") {
      is_text = true;
    } else {
      return Unexpected("a value", field);
    }
  }
  if (scalar.has_value()) event.scalars[tag] = *scalar;
  if (text.has_value() != is_text) return DataLoss("a text and its kind do not come together");
  if (text.has_value()) event.texts[tag] = *text;
  return absl::OkStatus();
}

absl::StatusOr<ReadEvent> DecodeEvent(std::string_view bytes) {
  GANTRY_ASSIGN_OR_RETURN(const std::vector<Field> fields, FieldsIn(bytes));
  ReadEvent event;
  for (const Field& field : fields) {
    if (field.number == 1) {
      event.wall_time = std::bit_cast<double>(field.value);
    } else if (field.number == 2) {
      event.step = static_cast<int64_t>(field.value);
    } else if (field.number == 3) {
      event.file_version = std::string(field.bytes);
    } else if (field.number == 5) {
      GANTRY_ASSIGN_OR_RETURN(const std::vector<Field> values, FieldsIn(field.bytes));
      for (const Field& value : values) GANTRY_RETURN_IF_ERROR(ReadValue(value.bytes, event));
    } else if (field.number == 7 && field.bytes == "\x08\x01") {
      event.restart = true;
    } else {
      return Unexpected("an event", field);
    }
  }
  return event;
}

}  // namespace

absl::StatusOr<std::vector<ReadEvent>> ReadEvents(std::string_view bytes) {
  std::vector<ReadEvent> events;
  const size_t total = bytes.size();
  while (!bytes.empty()) {
    const size_t at = total - bytes.size();
    if (bytes.size() < 12) return DataLoss("byte ", at, ": a record is cut short");
    const std::string_view header = bytes.substr(0, 8);
    const uint64_t length = LittleEndian(header);
    if (LittleEndian(bytes.substr(8, 4)) != MaskedCrc32c(header)) {
      return DataLoss("byte ", at, ": the checksum of the length does not fit");
    }
    if (bytes.size() - 12 < 4 || length > bytes.size() - 16) {
      return DataLoss("byte ", at, ": a record of ", length, " bytes is cut short");
    }
    const std::string_view message = bytes.substr(12, length);
    if (LittleEndian(bytes.substr(12 + length, 4)) != MaskedCrc32c(message)) {
      return DataLoss("byte ", at, ": the checksum of the message does not fit");
    }
    GANTRY_ASSIGN_OR_RETURN(ReadEvent event, DecodeEvent(message));
    events.push_back(std::move(event));
    bytes.remove_prefix(16 + length);
  }
  return events;
}

}  // namespace gantry
