#include "trainer/logging/event_message.h"

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "trainer/logging/crc32c.h"

namespace gantry {
namespace {

// Field numbers, from TensorFlow's event.proto, summary.proto, tensor.proto, tensor_shape.proto.
constexpr uint32_t kEventWallTime = 1;
constexpr uint32_t kEventStep = 2;
constexpr uint32_t kEventFileVersion = 3;
constexpr uint32_t kEventSummary = 5;
constexpr uint32_t kEventSessionLog = 7;
constexpr uint32_t kSessionLogStatus = 1;
constexpr uint32_t kSummaryValue = 1;
constexpr uint32_t kValueTag = 1;
constexpr uint32_t kValueSimpleValue = 2;
constexpr uint32_t kValueTensor = 8;
constexpr uint32_t kValueMetadata = 9;
constexpr uint32_t kMetadataPluginData = 1;
constexpr uint32_t kPluginDataName = 1;
constexpr uint32_t kTensorDType = 1;
constexpr uint32_t kTensorShape = 2;
constexpr uint32_t kTensorStringValue = 8;
constexpr uint32_t kShapeDimension = 2;
constexpr uint32_t kDimensionSize = 1;

constexpr uint64_t kSessionStart = 1;
constexpr uint64_t kDTypeString = 7;

void AppendLittleEndian(uint64_t value, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) {
    out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
  }
}

// Appends fields to a protocol buffer's bytes.
class MessageWriter {
 public:
  MessageWriter& Varint(uint32_t field, uint64_t value) {
    AppendKey(field, 0);
    AppendVarint(value);
    return *this;
  }
  MessageWriter& Fixed64(uint32_t field, uint64_t bits) {
    AppendKey(field, 1);
    AppendLittleEndian(bits, 8, bytes_);
    return *this;
  }
  MessageWriter& Bytes(uint32_t field, std::string_view value) {
    AppendKey(field, 2);
    AppendVarint(value.size());
    bytes_ += value;
    return *this;
  }
  MessageWriter& Message(uint32_t field, const MessageWriter& message) {
    return Bytes(field, message.bytes_);
  }
  MessageWriter& Fixed32(uint32_t field, uint32_t bits) {
    AppendKey(field, 5);
    AppendLittleEndian(bits, 4, bytes_);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void AppendKey(uint32_t field, uint32_t wire_type) { AppendVarint((field << 3U) | wire_type); }
  void AppendVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7U) {
      bytes_ += static_cast<char>(static_cast<unsigned char>(value | 0x80U));
    }
    bytes_ += static_cast<char>(static_cast<unsigned char>(value));
  }

  std::string bytes_;
};

// An event's first fields; a step of 0 is what a message without one has.
MessageWriter StartEvent(const EventStamp& stamp) {
  GANTRY_CHECK_GE(stamp.step, 0);
  MessageWriter event;
  event.Fixed64(kEventWallTime, std::bit_cast<uint64_t>(stamp.wall_time));
  if (stamp.step > 0) event.Varint(kEventStep, static_cast<uint64_t>(stamp.step));
  return event;
}

std::string Record(const MessageWriter& message) {
  std::string record;
  AppendLittleEndian(message.bytes().size(), 8, record);
  AppendLittleEndian(MaskedCrc32c(record), 4, record);
  record += message.bytes();
  AppendLittleEndian(MaskedCrc32c(message.bytes()), 4, record);
  return record;
}

}  // namespace

std::string FileVersionRecord(double wall_time) {
  return Record(
      StartEvent({.wall_time = wall_time, .step = 0}).Bytes(kEventFileVersion, "brain.Event:2"));
}

std::string RestartRecord(const EventStamp& stamp) {
  return Record(StartEvent(stamp).Message(
      kEventSessionLog, MessageWriter().Varint(kSessionLogStatus, kSessionStart)));
}

std::string ScalarsRecord(const EventStamp& stamp, std::span<const ScalarPoint> points) {
  MessageWriter summary;
  for (const ScalarPoint& point : points) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(point.value));
    summary.Message(kSummaryValue,
                    MessageWriter().Bytes(kValueTag, point.tag).Fixed32(kValueSimpleValue, bits));
  }
  return Record(StartEvent(stamp).Message(kEventSummary, summary));
}

std::string TextRecord(const EventStamp& stamp, const TextPoint& point) {
  const MessageWriter shape =
      MessageWriter().Message(kShapeDimension, MessageWriter().Varint(kDimensionSize, 1));
  const MessageWriter tensor = MessageWriter()
                                   .Varint(kTensorDType, kDTypeString)
                                   .Message(kTensorShape, shape)
                                   .Bytes(kTensorStringValue, point.text);
  const MessageWriter metadata =
      MessageWriter().Message(kMetadataPluginData, MessageWriter().Bytes(kPluginDataName, "text"));
  const MessageWriter value = MessageWriter()
                                  .Bytes(kValueTag, point.tag)
                                  .Message(kValueTensor, tensor)
                                  .Message(kValueMetadata, metadata);
  return Record(
      StartEvent(stamp).Message(kEventSummary, MessageWriter().Message(kSummaryValue, value)));
}

}  // namespace gantry
