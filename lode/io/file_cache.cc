#include "lode/io/file_cache.h"

#include <fcntl.h>

#include <cerrno>
#include <vector>

#include "lode/base/bytes.h"

namespace lode::io {
namespace {

template <class Use>
Status with_open(const SourceFile& file, SystemCalls& calls, const Use& use) {
  const int descriptor = calls.open(file.path, O_RDONLY | O_NONBLOCK, 0);
  if (descriptor < 0) return system_error(file.path, "open", descriptor);
  const std::int64_t answer = use(descriptor);
  calls.close(descriptor);
  if (answer < 0) return system_error(file.path, "ask what of it the page cache has", answer);
  return {};
}

}  // namespace

Status drop_from_page_cache(std::span<const SourceFile> files, SystemCalls& calls) {
  for (const SourceFile& file : files) {
    LODE_TRY_STATUS(with_open(file, calls, [&](int descriptor) -> std::int64_t {
      calls.sync_data(descriptor);  // dirty pages cannot be dropped; a read-only disk has none
      return calls.drop_cache(descriptor, 0, 0);
    }));
  }
  return {};
}

Status bring_into_page_cache(std::span<const SourceFile> files, SystemCalls& calls) {
  std::vector<std::byte> buffer(kMiB);
  for (const SourceFile& file : files) {
    LODE_TRY_STATUS(with_open(file, calls, [&](int descriptor) -> std::int64_t {
      for (std::uint64_t offset = 0;;) {
        const std::int64_t got = calls.pread(descriptor, buffer, offset);
        if (got == -EINTR) continue;
        if (got <= 0) return got;
        offset += static_cast<std::uint64_t>(got);
      }
    }));
  }
  return {};
}

}  // namespace lode::io
