#pragma once

#include <span>

#include "lode/base/result.h"
#include "lode/io/read_engine.h"

namespace lode::io {

/// Writes files out and drops them from the page cache, so that what follows reads the disk.
/// Errors: kIo naming the file.
Status drop_from_page_cache(std::span<const SourceFile> files, SystemCalls& calls = system_calls());

/// Reads files into the page cache, for measurements of warm loads.
/// Errors: kIo naming the file.
/// Memory: a buffer of 1 MiB, and the files themselves in the page cache.
Status bring_into_page_cache(std::span<const SourceFile> files,
                             SystemCalls& calls = system_calls());

}  // namespace lode::io
