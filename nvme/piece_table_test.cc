#include "nvme/piece_table.h"

#include <cstddef>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/strings.h"
#include "gtest/gtest.h"
#include "nvme/io_backend.h"

namespace gantry {
namespace {

using Hashes = std::vector<uint64_t>;

const ExtentId kFirst(0);
const ExtentId kSecond(1);

class PieceTableTest : public testing::Test {
 protected:
  PieceTableTest() { table_.Grow(3); }
  void Write(ExtentId extent, const Hashes& hashes) { table_.Advance(extent, hashes); }
  bool Says(PieceTable::Piece piece, uint64_t hash, std::string_view text) {
    const std::string diagnosis = table_.Diagnose(piece, hash);
    return diagnosis.find(text) != std::string::npos;
  }

  PieceTable table_{Bytes(2 * kPieceBytes + 4096)};
};

TEST_F(PieceTableTest, CountsGenerationsAndKeepsTheLast) {
  EXPECT_EQ(table_.pieces_per_extent(), 3);
  EXPECT_EQ(table_.generation(kFirst), 0);
  Write(kFirst, {11, 12, 13});
  Write(kFirst, {21, 22, 23});
  EXPECT_EQ(table_.generation(kFirst), 2);
  EXPECT_EQ(table_.generation(kSecond), 0);
  EXPECT_TRUE(table_.Matches({kFirst, 2}, 23));
  EXPECT_FALSE(table_.Matches({kFirst, 2}, 13));
  EXPECT_FALSE(table_.Matches({kFirst, 1}, 21));
}

TEST_F(PieceTableTest, ALostWriteIsTheGenerationBefore) {
  Write(kFirst, {11, 12, 13});
  Write(kFirst, {21, 22, 23});
  EXPECT_TRUE(Says({kFirst, 1}, 12, "those of generation 1: the last write was lost"));
  Write(kFirst, {31, 32, 33});
  EXPECT_TRUE(Says({kFirst, 1}, 12, "corrupted"));  // two generations back is forgotten
}

TEST_F(PieceTableTest, ALostFirstWriteIsZeros) {
  const std::vector<std::byte> zeros(static_cast<size_t>(kPieceBytes));
  Write(kFirst, {11, 12, 13});
  EXPECT_TRUE(Says({kFirst, 0}, Hash64(zeros), "those of generation 0: the last write was lost"));
  EXPECT_TRUE(Says({kFirst, 2}, Hash64(std::span(zeros).first(4096)), "those of generation 0"));
  EXPECT_TRUE(Says({kFirst, 2}, Hash64(zeros), "corrupted"));  // not its length
  // Zeros where data should be are not "another extent's", though other extents hold zeros.
  Write(kFirst, {21, 22, 23});
  EXPECT_TRUE(Says({kFirst, 0}, Hash64(zeros), "corrupted"));
}

TEST_F(PieceTableTest, AnotherExtentsBytesAreNamed) {
  Write(kFirst, {11, 12, 13});
  Write(kSecond, {41, 42, 43});
  EXPECT_TRUE(Says({kFirst, 0}, 42, "extent#1 piece 1 generation 1: a write went to the wrong"));
  Write(kSecond, {51, 52, 53});
  EXPECT_TRUE(Says({kFirst, 0}, 52, "extent#1 piece 1 generation 2"));
  EXPECT_TRUE(Says({kFirst, 0}, 43, "extent#1 piece 2 generation 1"));
  EXPECT_TRUE(Says({kFirst, 0}, 13, "extent#0 piece 2 generation 1"));  // its own, misplaced
  // Its own previous generation comes first, whoever else holds the same.
  Write(kFirst, {52, 12, 13});
  Write(kFirst, {61, 62, 63});
  EXPECT_TRUE(Says({kFirst, 0}, 52, "the last write was lost"));
}

TEST_F(PieceTableTest, AFailedWriteExplainsAMixture) {
  Write(kFirst, {11, 12, 13});
  table_.NoteFailedWrite(kFirst);
  EXPECT_EQ(table_.generation(kFirst), 1);
  EXPECT_TRUE(table_.Matches({kFirst, 0}, 11));
  EXPECT_TRUE(Says({kFirst, 0}, 99, "a write of generation 2 failed before"));
  Write(kFirst, {21, 22, 23});
  EXPECT_TRUE(Says({kFirst, 0}, 99, "corrupted"));
}

TEST_F(PieceTableTest, GrowthKeepsWhatIsThere) {
  Write(kSecond, {41, 42, 43});
  table_.Grow(0);
  table_.Grow(100);
  EXPECT_TRUE(table_.Matches({kSecond, 2}, 43));
  EXPECT_EQ(table_.generation(ExtentId(102)), 0);
  EXPECT_DEATH(static_cast<void>(table_.generation(ExtentId(103))), "extent#103");
  EXPECT_DEATH(Write(kFirst, {1, 2}), "hashes");
}

}  // namespace
}  // namespace gantry
