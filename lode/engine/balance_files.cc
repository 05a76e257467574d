#include "lode/engine/balance_files.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "lode/base/fmt.h"

namespace lode::engine {
namespace {

Error invalid(std::string thing, std::string wanted, std::string found) {
  return {.code = Code::kInvalidSource,
          .thing = std::move(thing),
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

std::string found_in(const json::Value* value) {
  return value == nullptr ? "nothing" : std::string(value->kind());
}

Result<std::size_t> count_of(const json::Value& file, std::string_view name) {
  const json::Value* found = file.find(name);
  if (found == nullptr || found->as_int() == nullptr)
    return invalid(fmt::format("\"{}\"", name), "a whole number", found_in(found));
  const std::int64_t count = *found->as_int();
  if (count >= 1 && count <= static_cast<std::int64_t>(kMaxBalanceNumbers))
    return static_cast<std::size_t>(count);
  return invalid(fmt::format("\"{}\"", name), fmt::format("1..{}", kMaxBalanceNumbers),
                 fmt::format("{}", count));
}

// A list that has a length to be of, or any where that is 0.
Result<const json::Array*> list_of(const json::Value* value, const std::string& name,
                                   std::size_t length) {
  if (value == nullptr || value->as_array() == nullptr)
    return invalid(name, "a list", found_in(value));
  const std::size_t found = value->as_array()->size();
  if (length == 0 || found == length) return value->as_array();
  return invalid(name, fmt::format("{} entries", length), fmt::format("{}", found));
}

Result<float> load_of(const json::Value& value, std::size_t row, std::size_t expert) {
  const auto refused = [&](std::string found) {
    return invalid(fmt::format("load of expert {} in layer {}", expert, row),
                   "a number from 0 on that a float holds", std::move(found));
  };
  if (!value.is_number()) return refused(std::string(value.kind()));
  const double load = value.number();
  if (load >= 0 && load <= std::numeric_limits<float>::max()) return static_cast<float>(load);
  return refused(fmt::format("{}", load));
}

Result<std::vector<float>> matrix_of(const json::Value* value, const std::string& name,
                                     const BalanceLoads& sizes) {
  LODE_TRY(const json::Array* rows, list_of(value, name, sizes.layers));
  std::vector<float> matrix;
  for (std::size_t layer = 0; layer < rows->size(); ++layer) {
    LODE_TRY(const json::Array* row,
             list_of(&(*rows)[layer], fmt::format("{}[{}]", name, layer), sizes.experts));
    for (std::size_t expert = 0; expert < row->size(); ++expert) {
      LODE_TRY(const float load, load_of((*row)[expert], layer, expert));
      matrix.push_back(load);
    }
  }
  return matrix;
}

Status read_traffic(const json::Value& file, BalanceLoads& loads) {
  LODE_TRY(const json::Array* steps, list_of(file.find("traffic"), "\"traffic\"", 0));
  if (steps->empty()) return invalid("\"traffic\"", "one step or more", "none");
  loads.loads.assign(loads.layers * loads.experts, 0.0F);
  loads.steps = static_cast<double>(steps->size());
  for (std::size_t step = 0; step < steps->size(); ++step) {
    LODE_TRY(std::vector<float> matrix,
             matrix_of(&(*steps)[step], fmt::format("\"traffic\"[{}]", step), loads));
    for (std::size_t i = 0; i < matrix.size(); ++i) loads.loads[i] += matrix[i];
    loads.traffic.push_back(std::move(matrix));
  }
  return {};
}

Status read_steps(const json::Value& file, BalanceLoads& loads) {
  const json::Value* steps = file.find("steps");
  if (steps == nullptr) return {};
  if (steps->is_number()) loads.steps = steps->number();
  if (steps->is_number() && loads.steps > 0 && loads.steps <= 1e15) return {};
  return invalid("\"steps\"", "a number of passes above 0", json::dump(*steps));
}

std::int32_t highest(std::span<const std::int32_t> experts) {
  return experts.empty() ? -1 : std::ranges::max(experts);
}

Result<std::vector<std::int32_t>> slots_of(const json::Value& value, std::size_t layer,
                                           std::size_t slots) {
  LODE_TRY(const json::Array* row,
           list_of(&value, fmt::format("\"physical_to_logical\"[{}]", layer), slots));
  std::vector<std::int32_t> experts;
  for (std::size_t slot = 0; slot < row->size(); ++slot) {
    const std::int64_t* expert = (*row)[slot].as_int();
    if (expert == nullptr || *expert < placement::kNoExpert ||
        *expert >= static_cast<std::int64_t>(placement::kMaxExperts)) {
      return invalid(fmt::format("slot {} of layer {}", slot, layer), "an expert, or -1 for none",
                     json::dump((*row)[slot]));
    }
    experts.push_back(static_cast<std::int32_t>(*expert));
  }
  return experts;
}

}  // namespace

Result<BalanceLoads> read_balance_loads(const json::Value& value) {
  if (value.as_object() == nullptr) return invalid("loads", "an object", std::string(value.kind()));
  BalanceLoads loads;
  LODE_TRY(loads.layers, count_of(value, "layers"));
  LODE_TRY(loads.experts, count_of(value, "experts"));
  if (loads.layers > kMaxBalanceNumbers / loads.experts)
    return invalid("loads", fmt::format("at most {} numbers", kMaxBalanceNumbers),
                   fmt::format("{} layers of {} experts", loads.layers, loads.experts));
  if (value.find("traffic") != nullptr) {
    LODE_TRY_STATUS(read_traffic(value, loads));
    return loads;
  }
  LODE_TRY_STATUS(read_steps(value, loads));
  LODE_TRY(loads.loads, matrix_of(value.find("loads"), "\"loads\"", loads));
  return loads;
}

json::Value as_json(const BalanceLoads& loads) {
  json::Array rows;
  for (std::size_t layer = 0; layer < loads.layers; ++layer) {
    json::Array row;
    for (std::size_t e = 0; e < loads.experts; ++e)
      row.emplace_back(static_cast<double>(loads.loads[layer * loads.experts + e]));
    rows.emplace_back(std::move(row));
  }
  return json::object({{"layers", std::uint64_t{loads.layers}},
                       {"experts", std::uint64_t{loads.experts}},
                       {"steps", loads.steps},
                       {"loads", std::move(rows)}});
}

Result<std::vector<placement::ExpertMap>> read_balance_maps(const json::Value& value) {
  if (value.as_object() == nullptr) return invalid("maps", "an object", std::string(value.kind()));
  LODE_TRY(const std::size_t slots, count_of(value, "slots"));
  LODE_TRY(const std::size_t ranks, count_of(value, "ranks"));
  std::size_t layers = 0;
  if (value.find("layers") != nullptr) {
    LODE_TRY(layers, count_of(value, "layers"));
  }
  LODE_TRY(const json::Array* rows,
           list_of(value.find("physical_to_logical"), "\"physical_to_logical\"", layers));
  std::vector<std::vector<std::int32_t>> lists;
  std::int32_t last = -1;
  for (std::size_t layer = 0; layer < rows->size(); ++layer) {
    LODE_TRY(std::vector<std::int32_t> list, slots_of((*rows)[layer], layer, slots));
    last = std::max(last, highest(list));
    lists.push_back(std::move(list));
  }
  std::size_t experts = static_cast<std::size_t>(last + 1);
  if (value.find("experts") != nullptr) {
    LODE_TRY(experts, count_of(value, "experts"));
  }
  std::vector<placement::ExpertMap> maps;
  for (std::size_t layer = 0; layer < lists.size(); ++layer) {
    auto map = placement::ExpertMap::make(std::move(lists[layer]), experts, ranks);
    if (!map) return at(fmt::format("layer {}", layer), std::move(map).error());
    maps.push_back(*std::move(map));
  }
  if (maps.empty()) return invalid("\"physical_to_logical\"", "one layer or more", "none");
  return maps;
}

json::Value as_json(std::span<const placement::ExpertMap> maps) {
  json::Array rows;
  for (const placement::ExpertMap& map : maps) {
    json::Array row;
    for (const std::int32_t expert : map.physical_to_logical()) row.emplace_back(int{expert});
    rows.emplace_back(std::move(row));
  }
  const auto first = [&](std::size_t (placement::ExpertMap::*size)() const noexcept) {
    return maps.empty() ? std::uint64_t{0} : std::uint64_t{(maps.front().*size)()};
  };
  return json::object({{"layers", std::uint64_t{maps.size()}},
                       {"experts", first(&placement::ExpertMap::experts)},
                       {"slots", first(&placement::ExpertMap::slots)},
                       {"ranks", first(&placement::ExpertMap::ranks)},
                       {"physical_to_logical", std::move(rows)}});
}

}  // namespace lode::engine
