#pragma once

#include <filesystem>
#include <memory>

#include "lode/base/result.h"
#include "lode/io/system_calls.h"
#include "lode/prepared/prepare.h"

namespace lode::prepared {

/// A preparation whose result is a folder of safetensors, named and shaped as an engine holds them
/// after its own preparation: "model.layers.3.mlp.experts.w13_weight" [E, ...] and its like from
/// `input.engine`, which must be there; every other tensor as the checkpoint has it; config.json,
/// tokenizer.json and their like beside them. Files of about 4 GiB, and an index, which comes last.
/// It is not gone on with: what was written of one that fails is removed; one that was killed is
/// begun again, and one that is finished is found so (export_folder.h).
///
/// Of the options `strict` and `force` mean something.
///
/// Memory: `run` holds what loader::stream_engine holds, and 512 bytes a tensor; then a piece of 2
///         MiB of a tensor that is copied.
/// Errors: kUsage where `out` holds something else, or an export of something else and not `force`,
///         is no folder, or is the source; kSourceChanged; kNoSpace naming what is missing. Of
///         `run`: kOverBudget; those of stream_engine; kNoSpace, kIo naming file and call.
Result<std::unique_ptr<Preparation>> open_export(const Input& input,
                                                 const std::filesystem::path& out,
                                                 const Options& options = {},
                                                 io::SystemCalls& calls = io::system_calls());

}  // namespace lode::prepared
