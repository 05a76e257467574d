#pragma once

#include "lode/base/result.h"
#include "lode/checkpoint/json_fields.h"
#include "lode/checkpoint/quant_config.h"

namespace lode::checkpoint {

/// Reads what `config.dialect` says beyond the list of excluded modules: algorithm, blocks, groups.
///
/// Errors: kInvalidSource naming the JSON path of a value of the wrong kind.
Status read_dialect(const JsonFields& fields, QuantConfig& config);

}  // namespace lode::checkpoint
