// CRC-32C (Castagnoli), the checksum of TFRecord files. Pure functions.
#ifndef GANTRY_TRAINER_LOGGING_CRC32C_H_
#define GANTRY_TRAINER_LOGGING_CRC32C_H_

#include <cstdint>
#include <string_view>

namespace gantry {

uint32_t Crc32c(std::string_view bytes);

// As TFRecord files hold it: rotated right by 15 bits, plus a constant, so that the checksum of
// bytes that hold their own checksum is no special value.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace gantry

#endif  // GANTRY_TRAINER_LOGGING_CRC32C_H_
