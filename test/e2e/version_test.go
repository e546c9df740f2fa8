package e2e

import (
	"debug/buildinfo"
	"debug/elf"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSize asserts that the command which CI jobs download stays small and static: it runs in
// images without a C library.
func TestSize(t *testing.T) {
	const most = 40_000_000
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

// TestVersion asks both programs for their version: it is what the linker was told, which stands in
// them besides.
func TestVersion(t *testing.T) {
	told := regexp.MustCompile(`-X main\.version=(\S+)`)
	for program, flag := range map[string]string{"lanyard": "version", "lanyard-controller": "--version"} {
		info, err := buildinfo.ReadFile(binary(program))
		must(t, "read how bin/"+program+" was built", err)
		var version string
		for _, s := range info.Settings {
			if match := told.FindStringSubmatch(s.Value); s.Key == "-ldflags" && match != nil {
				version = match[1]
			}
		}
		out, err := exec.CommandContext(t.Context(), binary(program), flag).Output()
		if first, _, _ := strings.Cut(string(out), "\n"); err != nil || version == "" || !strings.HasPrefix(first, program+" "+version) {
			t.Errorf("bin/%s says %q, %v; the linker was told %q", program, first, err, version)
		}
	}
}
