#pragma once

#include <memory>

#include "lode/base/result.h"
#include "lode/io/source_reader.h"

namespace lode::io {

/// How an engine is to be made, once it is known which.
struct EngineSettings {
  std::uint32_t num_threads = 4;
  std::uint64_t piece_bytes = std::uint64_t{1} << 30;  // larger requests are cut
  std::uint64_t most_bytes_at_once = 16 * 1024 * 1024;
  bool direct = true;
  bool try_depths = true;
  std::string reason;  // why this one: part of its description
};

/// Threads that call pread.
/// Errors: kOther where the system gives no threads.
Result<std::unique_ptr<ReadEngine>> make_threads_engine(std::unique_ptr<SourceReader> reader,
                                                        EngineSettings settings);

/// A queue of io_uring, driven by its caller's thread.
/// Errors: kUnsupported where the system refuses one. The reader stays the caller's then.
Result<std::unique_ptr<ReadEngine>> make_uring_engine(std::unique_ptr<SourceReader>& reader,
                                                      EngineSettings settings);

}  // namespace lode::io
