#pragma once

#include <span>

#include "lode/targets/target.h"

// The ways to each group of targets, every group in a file of its name; only targets/ includes
// this.

namespace lode::targets {}  // namespace lode::targets
