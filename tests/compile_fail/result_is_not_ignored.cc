// A Result that nobody looks at is a fault that nobody hears of.
// Refused: nodiscard|unused-result
#include "lode/base/result.h"

lode::Status write_everything();

lode::Status f() {
#ifdef LODE_MUST_FAIL
  write_everything();
  return {};
#else
  return write_everything();
#endif
}
