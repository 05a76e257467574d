#pragma once

#include <string>

#include "lode/engine/balance_report.h"
#include "lode/engine/balance_simulate.h"

namespace lode::cli {

// What `lode balance` prints for people.
std::string plan_text(const engine::BalancePlan& plan, const engine::BalanceRequest& request);
std::string simulation_text(const engine::Simulation& simulation);

}  // namespace lode::cli
