#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "lode/families/router_spec.h"

// For tests only: routing by the words of spec moe_runner_eplb 1 and families 3, in f64, with sorts
// where the router searches, and libm where it has its own functions.

namespace lode::moe::test {

struct Reference {
  std::vector<std::int32_t> ids;
  std::vector<double> weights;
  bool sure = true;
};

struct ReferenceInput {
  std::vector<float> logits, bias, expert_scale;
  std::vector<std::int32_t> fixed_ids;
};

class ReferenceRouter {
 public:
  ReferenceRouter(const families::RouterSpec& spec, ReferenceInput input)
      : spec_(spec), input_(std::move(input)), size_(input_.logits.size()) {}

  Reference route() const {
    Reference out;
    if (spec_.score == families::Score::kSparseMixer) {
      mix(out);
    } else if (!input_.fixed_ids.empty()) {
      for (const std::int32_t id : input_.fixed_ids) take(out, static_cast<std::size_t>(id));
    } else {
      std::vector<std::size_t> order = eligible();
      sort(order);
      order.resize(std::min<std::size_t>(order.size(), spec_.top_k));
      for (const std::size_t id : order) take(out, id);
    }
    fill(out);
    normalise(out);
    return out;
  }

 private:
  using Ids = std::vector<std::size_t>;

  double logit(std::size_t id) const { return double{input_.logits[id]}; }
  double score(std::size_t id) const {
    const double x = logit(id);
    if (!std::isfinite(x)) return 0.0;
    switch (spec_.score) {
      case families::Score::kSigmoid:
        return 1.0 / (1.0 + std::exp(-x));
      case families::Score::kSqrtSoftplus:
        return std::sqrt(x > 0.0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)));
      default:
        return std::exp(x - top()) / total();
    }
  }
  double top() const {
    double largest = -1e300;
    for (std::size_t id = 0; id < size_; ++id) {
      if (std::isfinite(logit(id))) largest = std::max(largest, logit(id));
    }
    return largest;
  }
  double total() const {
    if (sum_) return *sum_;
    double sum = 0.0;
    for (std::size_t id = 0; id < size_; ++id) {
      if (std::isfinite(logit(id))) sum += std::exp(logit(id) - top());
    }
    sum_ = sum;
    return sum;
  }
  double key(std::size_t id) const {
    return input_.bias.empty() ? logit(id) : score(id) + double{input_.bias[id]};
  }
  bool usable(std::size_t id) const { return std::isfinite(logit(id)) && std::isfinite(key(id)); }
  void sort(Ids& ids) const {
    std::vector<double> keys(size_);
    for (const std::size_t id : ids) keys[id] = key(id);
    std::stable_sort(ids.begin(), ids.end(),
                     [&](std::size_t a, std::size_t b) { return keys[a] > keys[b]; });
  }

  Ids eligible() const {
    const std::size_t width = size_ / spec_.num_groups;
    std::vector<Ids> groups(spec_.num_groups);
    for (std::size_t id = 0; id < size_; ++id) {
      if (usable(id)) groups[id / width].push_back(id);
    }
    std::vector<std::pair<double, std::size_t>> rank;  // least is best
    for (std::size_t group = 0; group < groups.size(); ++group) {
      sort(groups[group]);
      if (groups[group].empty()) continue;
      double worth = key(groups[group][0]);
      if (!input_.bias.empty() && groups[group].size() > 1) worth += key(groups[group][1]);
      rank.emplace_back(-worth, group);
    }
    std::sort(rank.begin(), rank.end());
    Ids out;
    for (std::size_t i = 0; i < std::min<std::size_t>(rank.size(), spec_.top_k_groups); ++i) {
      const Ids& group = groups[rank[i].second];
      out.insert(out.end(), group.begin(), group.end());
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  void take(Reference& out, std::size_t id) const {
    out.ids.push_back(static_cast<std::int32_t>(id));
    out.weights.push_back(score(id));
    out.sure = out.sure && std::isfinite(logit(id));
  }
  void mix(Reference& out) const {
    Ids left;
    for (std::size_t id = 0; id < size_; ++id) {
      if (usable(id)) left.push_back(id);
    }
    for (int pick = 0; pick < 2 && !left.empty(); ++pick) {
      Ids ranked = left;
      sort(ranked);
      const double best = logit(ranked[0]);
      double sum = 0.0;
      for (const std::size_t id : left) {
        const double scale = std::max(std::abs(logit(id)), best);
        const bool near = logit(id) == best || (best - logit(id)) / scale <= 2.0 * spec_.near;
        if (near) sum += std::exp(logit(id) - best);
      }
      out.ids.push_back(static_cast<std::int32_t>(ranked[0]));
      out.weights.push_back(1.0 / sum);
      left.erase(std::find(left.begin(), left.end(), ranked[0]));
    }
  }
  void fill(Reference& out) const {
    for (std::int32_t id = 0; out.ids.size() < spec_.top_k; ++id) {
      if (std::count(out.ids.begin(), out.ids.end(), id) != 0) continue;
      out.ids.push_back(id);
      out.weights.push_back(0.0);
      out.sure = false;
    }
  }
  void normalise(Reference& out) const {
    double norm = 1.0;
    if (spec_.renormalise || spec_.score == families::Score::kTopKSoftmax) {
      norm = 0.0;
      for (const double weight : out.weights) norm += std::pow(weight, spec_.norm_power);
      norm = std::pow(norm, 1.0 / spec_.norm_power) + spec_.norm_add;
      norm = std::max(norm, spec_.norm_floor);
      if (norm <= 0.0) norm = 1.0;
    }
    for (std::size_t i = 0; i < out.ids.size(); ++i) {
      out.weights[i] *= double{spec_.scaling} / norm;
      if (input_.expert_scale.empty()) continue;
      out.weights[i] *= double{input_.expert_scale[static_cast<std::size_t>(out.ids[i])]};
    }
  }

  const families::RouterSpec& spec_;
  ReferenceInput input_;
  std::size_t size_;
  mutable std::optional<double> sum_;
};

}  // namespace lode::moe::test
