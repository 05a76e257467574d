#include "lode/base/bytes.h"

#include <gtest/gtest.h>

namespace lode {
namespace {

TEST(ParseBytes, TakesUnitsInCapitalsAndSmallLetters) {
  for (const char* const text :
       {"12GiB", "12gib", "12GIB", "12 GiB", "12g", "12G", "12884901888"}) {
    const auto bytes = parse_bytes(text);
    ASSERT_TRUE(bytes) << text;
    EXPECT_EQ(*bytes, 12 * kGiB) << text;
  }
  const auto decimal = parse_bytes("900mb");
  ASSERT_TRUE(decimal);
  EXPECT_EQ(*decimal, 900'000'000U);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* const text : {"", "GiB", "12 gibi", "-1GiB", "12GiB.", "1e3"}) {
    EXPECT_FALSE(parse_bytes(text)) << text;
  }
}

}  // namespace
}  // namespace lode
