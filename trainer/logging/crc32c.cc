#include "trainer/logging/crc32c.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gantry {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78U;  // of Castagnoli, the least significant bit first
constexpr uint32_t kMaskDelta = 0xa282ead8U;
constexpr int kMaskRotation = 15;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) * kPolynomial);
    table[byte] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    const uint32_t index = (crc ^ static_cast<unsigned char>(c)) & 0xffU;
    crc = (crc >> 8U) ^ kTable[static_cast<size_t>(index)];
  }
  return ~crc;
}

uint32_t MaskedCrc32c(std::string_view bytes) {
  return std::rotr(Crc32c(bytes), kMaskRotation) + kMaskDelta;
}

}  // namespace gantry
