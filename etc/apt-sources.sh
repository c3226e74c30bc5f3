# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by install-packages and fetch-slurm-source: an apt with sources of
# its own. They are the machine's Debian sources, from the same mirrors and
# with the same keys, so nothing in /etc/apt is touched or needs to be.

# private_sources DIR TYPE SUITES
# Writes into DIR the sources of the running release as TYPE (deb or deb-src).
# SUITES, if not empty, replaces the suites of the release's main entry; the
# others (updates, security) are left out then.
private_sources() {
  local dir=$1 type=$2 suites=$3 codename file name
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  mkdir -p "$dir"/{parts,lists/partial,cache/archives/partial}
  rm -f "$dir"/parts/* "$dir/sources.list"

  # One-line entries: deb [options] address suite component...
  { cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true; } |
    awk -v type="$type" -v codename="$codename" -v suites="$suites" '
      $1 == "deb" {
        at = 3
        if ($2 ~ /^\[/) { while ($(at - 1) !~ /\]$/) at++; at++ }
        if ($at != codename && (suites != "" || index($at, codename "-") != 1)) next
        $1 = type
        n = split(suites == "" ? $at : suites, suite, " ")
        for (i = 1; i <= n; i++) { $at = suite[i]; print }
      }' >"$dir/sources.list"

  # Stanzas (deb822).
  for file in /etc/apt/sources.list.d/*.sources; do
    [[ -f $file ]] || continue
    name=$(basename "$file")
    grep -v '^#' "$file" |
      awk -v type="$type" -v codename="$codename" -v suites="$suites" '
        BEGIN { RS = ""; FS = "\n" }
        {
          use = 0; text = ""
          for (i = 1; i <= NF; i++) {
            line = $i
            if (line ~ /^Types:/) line = "Types: " type
            if (line ~ /^Enabled: *no/) { use = 0; break }
            if (line ~ /^Suites:/) {
              n = split(substr(line, 8), suite, " ")
              kept = ""
              for (j = 1; j <= n; j++) {
                if (suite[j] == codename) kept = kept " " (suites == "" ? codename : suites)
                else if (suites == "" && index(suite[j], codename "-") == 1) kept = kept " " suite[j]
              }
              use = kept != ""
              line = "Suites:" kept
            }
            text = text line "\n"
          }
          if (use) print text
        }' >"$dir/parts/$name"
  done
}

# private_apt DIR COMMAND...
# Runs apt-get with the sources in DIR; needs no rights for update and source.
private_apt() {
  local dir=$1
  shift
  apt-get -q -o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts="$dir/parts" \
    -o Dir::State::Lists="$dir/lists" -o Dir::Cache="$dir/cache" \
    -o APT::Sandbox::User=root -o APT::Update::Post-Invoke::= -o DPkg::Lock::Timeout=300 "$@"
}
