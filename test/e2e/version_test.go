package e2e

import (
	"debug/elf"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSize asserts that the command lanyard stays small, because CI jobs download it. Of its size,
// kustomize and package ssa take 4 MB, for lanyard diff kustomization. The command must also stay
// static, because it runs in images without a C library.
func TestSize(t *testing.T) {
	beside(t)
	const most = 43_000_000
	info, err := os.Stat(binary("lanyard"))
	must(t, "find bin/lanyard", err)
	if info.Size() > most {
		t.Errorf("bin/lanyard has %d bytes, more than %d: see what it links (go list -deps ./cmd/lanyard)", info.Size(), most)
	}
	program, err := elf.Open(binary("lanyard"))
	must(t, "read bin/lanyard", err)
	defer program.Close()
	libraries, err := program.ImportedLibraries()
	must(t, "read the libraries of bin/lanyard", err)
	interpreted := slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	if len(libraries) > 0 || interpreted {
		t.Errorf("bin/lanyard is not static: it needs %q, and a loader: %v; build it with CGO_ENABLED=0", libraries, interpreted)
	}
}

// TestVersion checks that the programs print the same version, which the linker sets.
func TestVersion(t *testing.T) {
	beside(t)
	// told matches the versions that the Makefile passes to the linker.
	told := regexp.MustCompile(`^(dev|[0-9a-f]{7,40}|v[0-9].*)(-dirty)?$`)
	versions := map[string]bool{}
	for program, flag := range map[string]string{"lanyard": "version", "lanyard-controller": "--version", "lanyard-token-server": "--version"} {
		out, err := exec.CommandContext(t.Context(), binary(program), flag).Output()
		words := strings.Fields(string(out))
		if err != nil || len(words) < 2 || words[0] != program || !told.MatchString(words[1]) {
			t.Errorf("bin/%s %s says %q, %v", program, flag, out, err)
			continue
		}
		versions[words[1]] = true
	}
	if len(versions) != 1 {
		t.Errorf("the programs have the versions %v; want one", versions)
	}
}
