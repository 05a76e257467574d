# Sourced by ./lode-demo and ./lode-test. lode_setup run|test installs the packages of
# tools/packages.apt that are missing; when none is, it takes a moment and touches nothing.

lode_missing_packages() {  # run|test
  local package who installed
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | sed -n 's/^ii *//p')
  while read -r package who _; do
    case "$package" in '' | '#'*) continue ;; esac
    if [ "$who" = run ] || [ "$1" = test ]; then
      grep -qxF -- "$package" <<<"$installed" || printf '%s ' "$package"
    fi
  done <tools/packages.apt
}

lode_setup() {  # run|test
  if ! command -v dpkg-query >/dev/null; then
    echo "lode: this is not Debian: nothing is installed; tools/packages.apt names what is needed." >&2
    return 0
  fi
  local missing as_root=
  missing=$(lode_missing_packages "$1")
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "lode: packages are missing and there is neither root nor sudo to install them. Ask for:" >&2
      echo "  apt-get install $missing" >&2
      return 1
    fi
    as_root=sudo
  fi
  echo "Installing: $missing"
  $as_root apt-get update -qq || echo "lode: apt-get update failed; trying with the lists there are" >&2
  # shellcheck disable=SC2086 -- words on purpose
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    $missing >/dev/null || { echo "lode: apt-get could not install: $missing" >&2; return 1; }
}
