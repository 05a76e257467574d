#include "lode/model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lode/base/fmt.h"

namespace lode::model {
namespace {

using families::RopeKind;
using families::RopeSpec;

double base_frequency(const RopeSpec& spec, std::uint32_t index) {
  return std::pow(spec.theta, -2.0 * index / spec.rotary_dim);
}

/// The feature whose wavelength fits `rotations` times into the original length.
double correction(const RopeSpec& spec, double rotations) {
  return spec.rotary_dim *
         std::log(spec.original_max_positions / (2.0 * std::numbers::pi * rotations)) /
         (2.0 * std::log(spec.theta));
}

struct Ramp {
  double low = 0.0;
  double high = 0.0;
};

Ramp yarn_ramp(const RopeSpec& spec) {
  Ramp ramp{correction(spec, spec.beta_fast), correction(spec, spec.beta_slow)};
  if (spec.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  const double last = spec.rotary_dim - 1.0;
  ramp = {std::clamp(ramp.low, 0.0, last), std::clamp(ramp.high, 0.0, last)};
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

double yarn_mscale(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

double yarn_magnitude(const RopeSpec& spec) {
  if (spec.attention_factor != 0.0) return spec.attention_factor;
  if (spec.mscale != 0.0 && spec.mscale_all_dim != 0.0) {
    return yarn_mscale(spec.factor, spec.mscale) / yarn_mscale(spec.factor, spec.mscale_all_dim);
  }
  return yarn_mscale(spec.factor, 1.0);
}

double llama3_frequency(const RopeSpec& spec, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double length = spec.original_max_positions;
  if (wavelength < length / spec.high_freq_factor) return frequency;
  if (wavelength > length / spec.low_freq_factor) return frequency / spec.factor;
  const double blend =
      (length / wavelength - spec.low_freq_factor) / (spec.high_freq_factor - spec.low_freq_factor);
  return (1.0 - blend) * frequency / spec.factor + blend * frequency;
}

double frequency_of(const RopeSpec& spec, const Ramp& ramp, std::uint32_t index) {
  const double base = base_frequency(spec, index);
  switch (spec.kind) {
    case RopeKind::kLinear:
      return base / spec.factor;
    case RopeKind::kLlama3:
      return llama3_frequency(spec, base);
    case RopeKind::kYarn: {
      const double share = std::clamp((index - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
      return share * base / spec.factor + (1.0 - share) * base;
    }
    case RopeKind::kNone:
    case RopeKind::kDefault:
      break;
  }
  return base;
}

}  // namespace

Result<RopeTable> make_rope_table(const RopeSpec& spec) {
  RopeTable table;
  if (spec.kind == RopeKind::kNone) return table;
  const bool scaled = spec.kind == RopeKind::kYarn || spec.kind == RopeKind::kLlama3;
  if (spec.rotary_dim % 2 != 0 || !(spec.theta > 1.0) || !(spec.factor > 0.0) ||
      (scaled && !(spec.original_max_positions > 0.0))) {
    return Error{.code = Code::kUnsupported,
                 .thing = "rotary positions",
                 .wanted = "an even width, theta above 1, a factor and an original length above 0",
                 .found = fmt::format("width {}, theta {}, factor {}, length {}", spec.rotary_dim,
                                      spec.theta, spec.factor, spec.original_max_positions)};
  }
  const Ramp ramp = spec.kind == RopeKind::kYarn ? yarn_ramp(spec) : Ramp{};
  for (std::uint32_t index = 0; index < spec.rotary_dim / 2; ++index) {
    table.frequencies.push_back(static_cast<float>(frequency_of(spec, ramp, index)));
  }
  if (spec.kind == RopeKind::kYarn) table.magnitude = static_cast<float>(yarn_magnitude(spec));
  return table;
}

}  // namespace lode::model
