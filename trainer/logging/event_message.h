// TensorBoard's messages as bytes: TFRecords of the protocol buffer `tensorflow.Event`, of which
// this writes the few fields that scalars and texts need. Pure functions.
//
// A record is its length (8 bytes, little-endian), the masked CRC-32C of these 8 bytes, the
// message, and the masked CRC-32C of the message. docs/formats/tensorboard.md lists the fields.
#ifndef GANTRY_TRAINER_LOGGING_EVENT_MESSAGE_H_
#define GANTRY_TRAINER_LOGGING_EVENT_MESSAGE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gantry {

// When a message was written and which step it is about.
struct EventStamp {
  double wall_time;  // seconds since 1970
  int64_t step;      // not negative
};

struct ScalarPoint {
  std::string_view tag;  // UTF-8; "group/name" puts it into a group
  double value;          // stored as f32; may be NaN
};

// UTF-8; the text is Markdown to TensorBoard.
struct TextPoint {
  std::string_view tag;
  std::string_view text;
};

// Each returns one record. The first record of a file says which format it has.
std::string FileVersionRecord(double wall_time);
// Makes a reader forget what earlier files of the run hold from stamp.step on.
std::string RestartRecord(const EventStamp& stamp);
std::string ScalarsRecord(const EventStamp& stamp, std::span<const ScalarPoint> points);
std::string TextRecord(const EventStamp& stamp, const TextPoint& point);

}  // namespace gantry

#endif  // GANTRY_TRAINER_LOGGING_EVENT_MESSAGE_H_
