#include "lode/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/checkpoint_files.h"

namespace lode::checkpoint {
namespace {

using formats::Format;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::bytes_of;
using testing_support::shard_of;
using testing_support::TempFolder;
using testing_support::with_header;

Result<ShardHeader> parsed(std::string_view file, RecordArena& arena) {
  return parse_header(bytes_of(file), file.size(), arena);
}

// "" where the file is accepted.
std::string fault_of(std::string_view file) {
  RecordArena arena;
  const Result<ShardHeader> header = parsed(file, arena);
  if (header) return "";
  EXPECT_EQ(header.error().code, Code::kInvalidSource);
  return to_string(header.error());
}

std::string fault_of_header(std::string_view header, std::size_t data_bytes) {
  return fault_of(with_header(header, data_bytes));
}

std::string length_bytes(std::uint64_t length) {
  std::string bytes;
  for (unsigned i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes;
}

TEST(Safetensors, ReadsNamesDtypesShapesAndPlaces) {
  const std::string file =
      with_header(R"({"__metadata__":{"format":"pt"},)"
                  R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
                  R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                  16);
  RecordArena arena;
  const Result<ShardHeader> header = parsed(file, arena);
  ASSERT_TRUE(header.has_value()) << to_string(header.error());
  EXPECT_EQ(header->data_offset, file.size() - 16);
  EXPECT_THAT(header->metadata, ElementsAre(std::pair("format", "pt")));
  ASSERT_EQ(header->tensors.size(), 2U);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_TRUE(header->tensors[0].dims.empty());
  EXPECT_EQ(header->tensors[0].file_offset, header->data_offset);
  EXPECT_EQ(header->tensors[0].bytes, 4U);
  EXPECT_EQ(header->tensors[1].name, "b");
  EXPECT_TRUE(header->tensors[1].is(Format::kBf16));
  EXPECT_THAT(header->tensors[1].dims, ElementsAre(2, 3));
  EXPECT_EQ(header->tensors[1].file_offset, header->data_offset + 4);
  EXPECT_EQ(header->tensors[1].bytes, 12U);
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(fault_of_header("{}", 0), "");
  EXPECT_EQ(fault_of_header("{}                 ", 0), "");
  EXPECT_EQ(fault_of_header(" \n\t{} \r\n", 0), "");
  EXPECT_EQ(fault_of_header(R"({"__metadata__":{}})", 0), "");
  EXPECT_EQ(fault_of_header(R"({"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]}})", 0), "");
  EXPECT_EQ(fault_of_header(R"({"s":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1), "");
  EXPECT_EQ(fault_of_header(
                R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":{"a":[1,{}]}}})", 1),
            "");
  EXPECT_EQ(fault_of_header(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), "");
}

TEST(Safetensors, EveryDtypeHasItsWidth) {
  const std::vector<std::pair<std::string, std::uint64_t>> bits = {
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},    {"I64", 64},    {"U64", 64},
      {"F64", 64},        {"C64", 64}};
  for (const auto& [dtype, width] : bits) {
    EXPECT_EQ(fault_of(shard_of({{"t", dtype, {3, 8}, 3 * width}})), "") << dtype;
    EXPECT_NE(fault_of(shard_of({{"t", dtype, {3, 8}, 3 * width + 1}})), "") << dtype;
  }
}

TEST(Safetensors, KeepsATensorOfUnknownDtypeAndFlagsIt) {
  RecordArena arena;
  const std::string file = shard_of({{"new", "F3_E1M1", {9}, 4}, {"old", "U8", {2}, 2}});
  const Result<ShardHeader> header = parsed(file, arena);
  ASSERT_TRUE(header.has_value());
  EXPECT_FALSE(header->tensors[0].format.has_value());
  EXPECT_EQ(header->tensors[0].dtype, "F3_E1M1");
  EXPECT_TRUE(header->tensors[1].is(Format::kU8));
}

TEST(Safetensors, RefusesAFileWithoutRoomForTheLength) {
  EXPECT_THAT(fault_of(""), HasSubstr("found 0 bytes"));
  EXPECT_THAT(fault_of("1234567"), HasSubstr("too small"));
}

TEST(Safetensors, RefusesHeaderLengthsThatCannotBe) {
  EXPECT_THAT(fault_of(length_bytes(0xFFFF'FFFF'FFFF'FFFF) + "{}"), HasSubstr("header too large"));
  EXPECT_THAT(fault_of(length_bytes(std::uint64_t{1} << 63) + "{}"), HasSubstr("too large"));
  EXPECT_THAT(fault_of(length_bytes(100'000'001) + "{}"), HasSubstr("too large, 100000001"));
  EXPECT_THAT(fault_of(length_bytes(100'000'000) + "{}"), HasSubstr("bad header length"));
  EXPECT_THAT(fault_of(length_bytes(3) + "{}"), HasSubstr("want 11 bytes"));
  EXPECT_THAT(fault_of(length_bytes(0)), HasSubstr("JSON"));
}

TEST(Safetensors, TellsAGitLfsPointer) {
  EXPECT_THAT(fault_of("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"),
              HasSubstr("Git LFS pointer"));
}

TEST(Safetensors, RefusesTextThatIsNoHeader) {
  using namespace std::string_literals;
  for (const std::string& header :
       {"x"s, "[]"s, "1"s, "null"s, "{"s, "{}}"s, "{} {}"s, "{}\0"s, "{}\0\0\0"s, "\xEF\xBB\xBF{}"s,
        R"({"a":1})"s, R"({"a":[]})"s, R"({"a":{}})"s, R"({"a":null})"s}) {
    EXPECT_NE(fault_of_header(header, 0), "") << header;
  }
  EXPECT_THAT(fault_of_header("{\"\xFF\":{}}", 0), HasSubstr("JSON"));
  EXPECT_THAT(fault_of_header("{\"\\ud800\":{}}", 0), HasSubstr("JSON"));
}

TEST(Safetensors, RefusesFieldsThatAreMissingOrOfAnotherKindNamingTheTensor) {
  for (const char* entry :
       {R"("shape":[1],"data_offsets":[0,1])", R"("dtype":"U8","data_offsets":[0,1])",
        R"("dtype":"U8","shape":[1])", R"("dtype":1,"shape":[1],"data_offsets":[0,1])",
        R"("dtype":["U8"],"shape":[1],"data_offsets":[0,1])",
        R"("dtype":{},"shape":[1],"data_offsets":[0,1])",
        R"("dtype":"U8","shape":1,"data_offsets":[0,1])",
        R"("dtype":"U8","shape":"[1]","data_offsets":[0,1])",
        R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])",
        R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])",
        R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])",
        R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])",
        R"("dtype":"U8","shape":[{}],"data_offsets":[0,1])",
        R"("dtype":"U8","shape":[1],"data_offsets":[0])",
        R"("dtype":"U8","shape":[1],"data_offsets":[0,1,1])",
        R"("dtype":"U8","shape":[1],"data_offsets":[0,1e0])",
        R"("dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616])",
        R"("dtype":"U8","shape":[1],"data_offsets":{"begin":0})"}) {
    EXPECT_THAT(fault_of_header("{\"some.weight\":{" + std::string(entry) + "}}", 1),
                HasSubstr("tensor some.weight"))
        << entry;
  }
}

TEST(Safetensors, RefusesDuplicateTensorsAndFields) {
  EXPECT_THAT(fault_of_header(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                              2),
              HasSubstr("\"a\" twice"));
  EXPECT_THAT(
      fault_of_header(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
      HasSubstr("\"dtype\" twice"));
}

TEST(Safetensors, RefusesMetadataThatIsNotStrings) {
  EXPECT_THAT(fault_of_header(R"({"__metadata__":{"k":1}})", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(fault_of_header(R"({"__metadata__":{"k":null}})", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(fault_of_header(R"({"__metadata__":{"k":{}}})", 0), HasSubstr("__metadata__"));
  EXPECT_THAT(fault_of_header(R"({"__metadata__":{"k":["v"]}})", 0), HasSubstr("__metadata__"));
  EXPECT_NE(fault_of_header(R"({"__metadata__":"v"})", 0), "");
  std::string deep = R"({"__metadata__":{"k":)";
  for (int i = 0; i < 100'000; ++i) deep += R"({"k":)";
  EXPECT_NE(fault_of_header(deep, 0), "");
}

TEST(Safetensors, RefusesDeepNestingInsideAFieldThatItSkips) {
  std::string deep = R"({"a":{"more":)";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  EXPECT_THAT(fault_of_header(deep, 0), HasSubstr("nesting"));
}

std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                  std::string_view offsets) {
  return "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(dtype) + "\",\"shape\":[" +
         std::string(shape) + "],\"data_offsets\":[" + std::string(offsets) + "]}";
}

TEST(Safetensors, RefusesGapsAndOverlapsNamingTheTensor) {
  const std::string first = entry("first", "U8", "4", "0,4");
  EXPECT_THAT(fault_of_header("{" + entry("only", "U8", "4", "1,5") + "}", 5),
              HasSubstr("tensor only: want its data to begin at byte 0, found a gap at byte 1"));
  EXPECT_THAT(fault_of_header("{" + first + "," + entry("second", "U8", "4", "5,9") + "}", 9),
              HasSubstr("tensor second: want its data to begin at byte 4, found a gap at byte 5"));
  EXPECT_THAT(fault_of_header("{" + first + "," + entry("second", "U8", "4", "3,7") + "}", 7),
              HasSubstr("tensor second: want its data to begin at byte 4, found overlap"));
  EXPECT_THAT(fault_of_header("{" + first + "," + entry("same", "U8", "4", "0,4") + "}", 4),
              HasSubstr("overlap"));
  EXPECT_THAT(fault_of_header("{" + first + "," + entry("inside", "U8", "0", "2,2") + "}", 4),
              HasSubstr("tensor inside"));
}

TEST(Safetensors, RefusesReversedAndImpossibleRanges) {
  EXPECT_THAT(fault_of_header("{" + entry("t", "U8", "4", "4,0") + "}", 4),
              HasSubstr("tensor t: want data_offsets with begin before end, found [4, 0]"));
  EXPECT_THAT(fault_of_header("{" + entry("t", "U8", "8", "0,8") + "}", 7),
              HasSubstr("tensor t: want data up to byte 8, found 7 bytes of data"));
  EXPECT_THAT(
      fault_of_header(
          "{" + entry("t", "U8", "18446744073709551615", "0,18446744073709551615") + "}", 4),
      HasSubstr("tensor t"));
}

TEST(Safetensors, RefusesSizesThatDoNotMatchOrDoNotFit) {
  EXPECT_THAT(fault_of_header("{" + entry("t", "F32", "2", "0,4") + "}", 4),
              HasSubstr("tensor t: want 8 bytes for F32 [2], found data_offsets of 4 bytes"));
  EXPECT_THAT(fault_of_header("{" + entry("t", "U8", "4294967296,4294967296", "0,0") + "}", 0),
              HasSubstr("tensor t: want a size that 64 bits hold"));
  EXPECT_THAT(fault_of_header("{" + entry("t", "U8", "9223372036854775808,2", "0,0") + "}", 0),
              HasSubstr("tensor t: want a size that 64 bits hold"));
  EXPECT_THAT(fault_of_header("{" + entry("t", "F64", "2305843009213693952", "0,0") + "}", 0),
              HasSubstr("tensor t: want a size that 64 bits hold"));
  EXPECT_THAT(fault_of_header("{" + entry("t", "U8", "562949953421312,0", "0,0") + "}", 0),
              HasSubstr("tensor t: want dimensions up to 281474976710656"));
  std::string ones = "1";
  for (int i = 0; i < 100'000; ++i) ones += ",1";
  EXPECT_THAT(fault_of_header("{" + entry("t", "U8", ones, "0,1") + "}", 1),
              HasSubstr("tensor t: want at most 32 dimensions"));
}

TEST(Safetensors, RefusesSubByteTensorsThatEndInsideAByte) {
  EXPECT_THAT(fault_of(shard_of({{"t", "F4", {3}, 2}})), HasSubstr("tensor t: want whole bytes"));
  EXPECT_THAT(fault_of(shard_of({{"t", "F4", {2, 3}, 3}})), HasSubstr("even last dimension"));
  EXPECT_THAT(fault_of(shard_of({{"t", "F6_E2M3", {3}, 3}})), HasSubstr("whole bytes"));
  EXPECT_EQ(fault_of(shard_of({{"t", "F6_E2M3", {4}, 3}})), "");
}

TEST(Safetensors, RefusesBytesAfterTheLastTensorAndMissingOnes) {
  const std::string file = shard_of({{"a", "U8", {4}, 4}, {"b", "U8", {4096}, 4096}});
  EXPECT_EQ(fault_of(file), "");
  EXPECT_THAT(fault_of(file + '\0'), HasSubstr("bytes after the last tensor"));
  for (const std::size_t cut : {std::size_t{1}, std::size_t{4096}, std::size_t{4100}}) {
    const std::string fault = fault_of(file.substr(0, file.size() - cut));
    EXPECT_THAT(fault, HasSubstr("cut short")) << cut;
  }
  EXPECT_THAT(fault_of(with_header("{}", 1)), HasSubstr("bytes after the last tensor"));
}

TEST(Safetensors, BoundsWhatManyTensorsCanMakeUsHold) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i) {
    header += (i == 0 ? "" : ",") + entry("t" + std::to_string(i), "U8", "200,200", "0,40000");
  }
  header += "}";
  const std::string file = with_header(header, 40'000);
  RecordArena arena;
  const Result<ShardHeader> parse = parsed(file, arena);
  ASSERT_FALSE(parse.has_value());
  EXPECT_THAT(to_string(parse.error()), HasSubstr("overlap"));
  EXPECT_LT(arena.held_bytes(), header.size());
}

TEST(Safetensors, RefusesMoreTensorsThanAnyShardHas) {
  std::string header = "{";
  for (std::size_t i = 0; i <= kMaxTensorsPerShard; ++i) {
    header += (i == 0 ? "" : ",") + entry(std::to_string(i), "U8", "0", "0,0");
  }
  EXPECT_THAT(fault_of_header(header + "}", 0), HasSubstr("at most 500000 tensors"));
}

TEST(Safetensors, MessagesHideControlCharacters) {
  const std::string fault =
      fault_of_header("{" + entry("\\u001b[31mred\\nline", "U8", "4", "1,5") + "}", 5);
  EXPECT_THAT(fault, HasSubstr("tensor ?[31mred?line"));
  EXPECT_THAT(fault, Not(HasSubstr("\n")));
}

TEST(Safetensors, RefusesNamesLongerThanAnyModelHas) {
  EXPECT_THAT(fault_of_header("{" + entry(std::string(5000, 'n'), "U8", "1", "0,1") + "}", 1),
              HasSubstr("names of at most 4096 bytes"));
}

TEST(Safetensors, ReadsAFileInPiecesAsItReadsMemory) {
  // A header larger than one piece, so that names cross the border.
  std::vector<testing_support::TensorEntry> tensors;
  for (int i = 0; i < 8000; ++i) {
    tensors.push_back({"model.layers." + std::to_string(i) + ".weight", "BF16", {3}, 6});
  }
  const std::string bytes = shard_of(tensors);
  const TempFolder folder;
  const Result<InputFile> file = InputFile::open(folder.write("m.safetensors", bytes));
  ASSERT_TRUE(file.has_value());
  RecordArena arena;
  const Result<ShardHeader> from_file = read_header(*file, arena);
  const Result<ShardHeader> from_memory = parsed(bytes, arena);
  ASSERT_TRUE(from_file.has_value() && from_memory.has_value());
  ASSERT_EQ(from_file->tensors.size(), 8000U);
  EXPECT_EQ(from_file->tensors[4321].name, from_memory->tensors[4321].name);
  EXPECT_EQ(from_file->tensors[4321].file_offset, from_memory->tensors[4321].file_offset);
}

TEST(Safetensors, ErrorsOfAFileNameIt) {
  const TempFolder folder;
  const std::string whole = shard_of({{"a", "U8", {4}, 4}});
  for (const std::size_t kept : {whole.size() - 1, std::size_t{12}, std::size_t{4}}) {
    const auto path = folder.write("short.safetensors", whole.substr(0, kept));
    const Result<InputFile> file = InputFile::open(path);
    ASSERT_TRUE(file.has_value());
    RecordArena arena;
    const Result<ShardHeader> header = read_header(*file, arena);
    ASSERT_FALSE(header.has_value());
    EXPECT_EQ(header.error().code, Code::kInvalidSource);
    EXPECT_THAT(to_string(header.error()), HasSubstr("short.safetensors"));
  }
}

}  // namespace
}  // namespace lode::checkpoint
