#include "trainer/safetensors/header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace gantry {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr int64_t kPadding = 8;
constexpr size_t kShownBytesMax = 80;

// For messages: names of hostile files are long or hold control characters.
std::string Shown(std::string_view name) {
  std::string text = JsonQuoted(name.substr(0, kShownBytesMax));
  text = text.substr(1, text.size() - 2);
  return StrCat("'", text, name.size() > kShownBytesMax ? "...'" : "'");
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

// Takes the parser's events, and stops it at the first thing that a header cannot hold: no document
// is built, and nothing nests deeper than a tensor's lists.
class HeaderBuilder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  // The names are the parser's.
  // NOLINTBEGIN(readability-identifier-naming)
  bool null() { return Unexpected("null"); }
  bool boolean(bool) { return Unexpected("true or false"); }
  bool number_integer(number_integer_t value) { return Unexpected(StrCat("the number ", value)); }
  bool number_float(number_float_t, const string_t& text) {
    return Unexpected(StrCat("the number ", text.substr(0, kShownBytesMax)));
  }
  bool number_unsigned(number_unsigned_t value) { return Number(value); }
  bool string(string_t& value) { return Text(value); }
  bool binary(binary_t&) { return Unexpected("binary data"); }
  bool start_object(size_t) { return OpenObject(); }
  bool end_object() { return CloseObject(); }
  bool start_array(size_t) { return OpenList(); }
  bool end_array() {
    place_ = Place::kTensor;
    return true;
  }
  bool key(string_t& name) { return Key(name); }
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    return Stop(StrCat("no JSON from byte ", position, " on"));
  }
  // NOLINTEND(readability-identifier-naming)

  const std::string& error() const { return error_; }
  SafetensorsHeader TakeHeader() { return std::move(header_); }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets };
  enum class Field { kNone, kDType, kShape, kOffsets };

  bool Stop(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    return false;
  }

  bool Unexpected(std::string_view what) {
    switch (place_) {
      case Place::kStart:
        return Stop(StrCat("it is ", what, ", not an object"));
      case Place::kTop:
        return Stop(StrCat(Shown(name_), " is ", what, ", not an object"));
      case Place::kMetadata:
        return Stop(StrCat(kMetadataKey, " holds ", what, "; it must hold texts only"));
      case Place::kTensor:
        return Stop(StrCat("tensor ", Shown(name_), ": ", FieldText(), " is ", what, ", not ",
                           field_ == Field::kDType ? "a text" : "a list"));
      case Place::kShape:
      case Place::kOffsets:
        break;
    }
    return Stop(StrCat("tensor ", Shown(name_), ": ", FieldText(), " holds ", what,
                       "; it must hold integers from 0 to 2^63 - 1"));
  }

  std::string_view FieldText() const {
    if (field_ == Field::kDType) return "dtype";
    return field_ == Field::kShape ? "shape" : "data_offsets";
  }

  bool OpenObject() {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
      return true;
    }
    if (place_ != Place::kTop) return Unexpected("an object");
    if (name_ == kMetadataKey) {
      if (std::exchange(has_metadata_, true)) return Stop("__metadata__ is there twice");
      place_ = Place::kMetadata;
      return true;
    }
    if (std::ssize(header_.tensors) == kStoredTensorsMax) {
      return Stop(StrCat("it has more than ", kStoredTensorsMax, " tensors"));
    }
    place_ = Place::kTensor;
    dtype_.reset();
    has_shape_ = has_offsets_ = false;
    shape_.clear();
    offsets_.clear();
    return true;
  }

  bool CloseObject() {
    const Place closed = std::exchange(place_, Place::kTop);
    return closed != Place::kTensor || AddTensor();
  }

  bool OpenList() {
    if (place_ != Place::kTensor || field_ == Field::kDType) return Unexpected("a list");
    place_ = field_ == Field::kShape ? Place::kShape : Place::kOffsets;
    return true;
  }

  bool Key(std::string& name) {
    if (place_ == Place::kTop) {
      if (name.size() > kStoredNameBytesMax) {
        return Stop(StrCat("the name ", Shown(name), " has ", name.size(), " bytes; the most is ",
                           kStoredNameBytesMax));
      }
      name_ = std::move(name);
      return true;
    }
    if (place_ == Place::kMetadata) {
      if (header_.metadata.size() == kStoredMetadataMax) {
        return Stop(StrCat("__metadata__ has more than ", kStoredMetadataMax, " entries"));
      }
      const auto [place, is_new] = header_.metadata.try_emplace(std::move(name));
      if (!is_new) return Stop(StrCat("__metadata__: ", Shown(place->first), " is there twice"));
      metadata_value_ = &place->second;
      return true;
    }
    return FieldKey(name);
  }

  bool FieldKey(const std::string& name) {
    bool twice = false;
    if (name == "dtype") {
      field_ = Field::kDType;
      twice = dtype_.has_value();
    } else if (name == "shape") {
      field_ = Field::kShape;
      twice = std::exchange(has_shape_, true);
    } else if (name == "data_offsets") {
      field_ = Field::kOffsets;
      twice = std::exchange(has_offsets_, true);
    } else {
      return Stop(StrCat("tensor ", Shown(name_), ": ", Shown(name),
                         " is not known; known are dtype, shape, data_offsets"));
    }
    return !twice || Stop(StrCat("tensor ", Shown(name_), ": ", FieldText(), " is there twice"));
  }

  bool Text(std::string& value) {
    if (place_ == Place::kMetadata) {
      *metadata_value_ = std::move(value);
      return true;
    }
    if (place_ != Place::kTensor || field_ != Field::kDType) return Unexpected("a text");
    dtype_ = FindStoredDType(value);
    if (dtype_.has_value()) return true;
    std::string known;
    for (int i = 0; i < kStoredDTypeCount; ++i) {
      known += StrCat(i == 0 ? "" : ", ", static_cast<StoredDType>(i));
    }
    return Stop(StrCat("tensor ", Shown(name_), ": dtype is ", Shown(value), "; it must be one of ",
                       known));
  }

  bool Number(uint64_t value) {
    const bool in_list = place_ == Place::kShape || place_ == Place::kOffsets;
    if (!in_list || value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Unexpected(StrCat("the number ", value));
    }
    std::vector<int64_t>& list = place_ == Place::kShape ? shape_ : offsets_;
    const size_t most = place_ == Place::kShape ? kStoredRankMax : 2;
    if (list.size() == most) {
      return Stop(
          StrCat("tensor ", Shown(name_), ": ", FieldText(), " has more than ", most, " numbers"));
    }
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool AddTensor() {
    if (!dtype_.has_value() || !has_shape_ || !has_offsets_) {
      const char* missing = !dtype_.has_value() ? "dtype" : has_shape_ ? "data_offsets" : "shape";
      return Stop(StrCat("tensor ", Shown(name_), ": ", missing, " is missing"));
    }
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) {
      return Stop(StrCat("tensor ", Shown(name_), ": data_offsets are ", ShapeText(offsets_),
                         "; they must be a begin and an end that is not before it"));
    }
    const absl::StatusOr<int64_t> bytes = StoredBytes(*dtype_, shape_);
    if (!bytes.ok()) {
      return Stop(StrCat("tensor ", Shown(name_), ": ", FromAbsl(bytes.status().message())));
    }
    if (*bytes != offsets_[1] - offsets_[0]) {
      return Stop(StrCat("tensor ", Shown(name_), ": ", *dtype_, " ", ShapeText(shape_), " is ",
                         *bytes, " bytes, but data_offsets hold ", offsets_[1] - offsets_[0]));
    }
    header_.tensors.push_back({.name = std::move(name_),
                               .dtype = *dtype_,
                               .shape = shape_,
                               .offset = offsets_[0],
                               .bytes = *bytes});
    return true;
  }

  SafetensorsHeader header_;
  Place place_ = Place::kStart;
  bool has_metadata_ = false;
  std::string* metadata_value_ = nullptr;
  std::string name_;  // of the tensor that is being read
  Field field_ = Field::kNone;
  std::optional<StoredDType> dtype_;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  std::vector<int64_t> shape_;
  std::vector<int64_t> offsets_;
  std::string error_;
};

absl::Status CheckNames(std::span<const StoredTensor> tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) names.push_back(tensor.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice == names.end()) return absl::OkStatus();
  return InvalidArgument("tensor ", Shown(*twice), " is there twice");
}

absl::Status CheckCoverage(std::span<const StoredTensor> tensors, int64_t data_bytes) {
  int64_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.offset != end) {
      return InvalidArgument("tensor ", Shown(tensor.name), " begins at byte ", tensor.offset,
                             " of the data, where the one before it ends at ", end,
                             tensor.offset < end ? ": they overlap" : ": there is a hole");
    }
    end = tensor.offset + tensor.bytes;  // an offset of the file, so no overflow
  }
  if (end == data_bytes) return absl::OkStatus();
  return InvalidArgument("the tensors end at byte ", end, " of the data, the file at ", data_bytes,
                         end > data_bytes ? ": it was cut short" : ": what follows is no tensor's");
}

}  // namespace

absl::StatusOr<int64_t> StoredBytes(StoredDType dtype, std::span<const int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent >= 0 && !__builtin_mul_overflow(elements, extent, &elements)) continue;
    return InvalidArgument("shape is ", ShapeText(shape), ", which is no number of elements");
  }
  int64_t bits = 0;
  if (__builtin_mul_overflow(elements, int64_t{BitsOf(dtype)}, &bits)) {
    return InvalidArgument("shape is ", ShapeText(shape), ", more bytes than a file can have");
  }
  if (bits % 8 == 0) return bits / 8;
  return InvalidArgument("shape is ", ShapeText(shape), ": elements of ", dtype,
                         " must fill whole bytes");
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json,
                                                         int64_t data_bytes) {
  if (std::ssize(json) > kSafetensorsHeaderBytesMax) {
    return InvalidArgument("the header has ", json.size(), " bytes; the most is ",
                           kSafetensorsHeaderBytesMax);
  }
  if (!json.starts_with('{')) return InvalidArgument("the header does not begin with '{'");
  // To the parser a zero byte is the end of the text.
  if (const size_t zero = json.find('\0'); zero != std::string_view::npos) {
    return InvalidArgument("the header: no JSON from byte ", zero + 1, " on: a zero byte");
  }
  HeaderBuilder builder;
  if (!Json::sax_parse(json.begin(), json.end(), &builder)) {
    return InvalidArgument("the header: ", builder.error());
  }
  SafetensorsHeader header = builder.TakeHeader();
  // Tensors without bytes come before the one that begins where they are.
  std::ranges::sort(header.tensors, [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  GANTRY_RETURN_IF_ERROR(CheckNames(header.tensors));
  GANTRY_RETURN_IF_ERROR(CheckCoverage(header.tensors, data_bytes));
  return header;
}

absl::StatusOr<std::string> SerializeSafetensorsHeader(const SafetensorsHeader& header) {
  std::string json = "{";
  if (!header.metadata.empty()) {
    json += StrCat("\"", kMetadataKey, "\":{");
    for (const auto& [key, value] : header.metadata) {
      json += StrCat(json.back() == '{' ? "" : ",", JsonQuoted(key), ":", JsonQuoted(value));
    }
    json += "}";
  }
  for (const StoredTensor& tensor : header.tensors) {
    json += StrCat(json.size() == 1 ? "" : ",", JsonQuoted(tensor.name), ":{\"dtype\":\"",
                   tensor.dtype, "\",\"shape\":[");
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      json += StrCat(i == 0 ? "" : ",", tensor.shape[i]);
    }
    json += StrCat("],\"data_offsets\":[", tensor.offset, ",", tensor.offset + tensor.bytes, "]}");
  }
  json += "}";
  while (std::ssize(json) % kPadding != 0) json += ' ';
  if (std::ssize(json) > kSafetensorsHeaderBytesMax) {
    return InvalidArgument("the header would have ", json.size(), " bytes; the most is ",
                           kSafetensorsHeaderBytesMax);
  }
  std::string text(kSafetensorsLengthBytes, '\0');
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<char>(static_cast<uint64_t>(json.size()) >> (8 * i) & 0xff);
  }
  return text + json;
}

}  // namespace gantry
