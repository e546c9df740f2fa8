package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the registry's storage
	"github.com/sirupsen/logrus"
)

const (
	smallArtifacts = 10
	smallBytes     = 20 << 10
	maxMemory      = 100 << 20 // target for the memory of push and pull, in bytes
)

// tools are the compared tools; the first is Lanyard.
var tools = [...]string{"lanyard", "flux", "oras"} //nolint:gochecknoglobals // a list

// lab is the environment in which a case is measured: a registry and a folder.
type lab struct {
	settings

	dir  string
	self string // path of this program
	host string // address of the registry
	out  io.Writer
}

// spent has the time and the memory of one measurement.
type spent struct {
	time time.Duration
	// cpu is the processor time of all threads. On a busy machine, it varies less than the field
	// time, the elapsed time.
	cpu    time.Duration
	memory int64 // peak of the memory, in bytes
}

// content describes an artifact that is pushed.
type content struct {
	name  string
	files int
	bytes int64 // size of all files together
	times int   // how often a run pushes and pulls the files
}

func measure(ctx context.Context, s settings, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "CASE\tLANYARD\tFLUX\tORAS\tTARGET\tMET")
	l := &lab{settings: s, self: self, out: table}
	for _, c := range []content{
		{"10,000 files", 10_000, s.bytes, 1}, {"one file", 1, s.bytes, 1}, {"10 small artifacts", 5, smallBytes, smallArtifacts},
	} {
		if !strings.Contains(c.name, s.only) {
			continue
		}
		if err := l.inRegistry(ctx, func() error { return l.pushAndPull(ctx, c) }); err != nil {
			return errors.Join(err, table.Flush())
		}
	}
	if strings.Contains("list", s.only) {
		if err := l.inRegistry(ctx, func() error { return l.list(ctx) }); err != nil {
			return err
		}
	}
	if err := l.programs(ctx); err != nil {
		return err
	}
	return table.Flush()
}

// programs measures the programs that the flags name: their sizes, and the least time of a run that
// only prints the program's version.
func (l *lab) programs(ctx context.Context) error {
	const (
		maxSize  = 40_000_000
		maxStart = 20 * time.Millisecond
	)
	// found has each program's start-up time. The field memory has the size of the program's file.
	var found [len(tools)]spent
	for i, command := range [len(tools)][]string{{l.lanyard, "version"}, {l.flux, "version", "--client"}, {l.oras, "version"}} {
		if command[0] == "" {
			continue
		}
		info, err := os.Stat(command[0])
		if err != nil {
			return err
		}
		if found[i], err = start(ctx, command); err != nil {
			return err
		}
		found[i].memory = info.Size()
	}
	l.row("start-up", found[:], func(s spent) string { return fmt.Sprintf("%.1f ms", float64(s.time.Microseconds())/1000) },
		"<= 20 ms", found[0].time <= maxStart)
	l.row("size", found[:], func(s spent) string { return fmt.Sprintf("%.1f MB", float64(s.memory)/1e6) },
		"<= 40 MB", found[0].memory <= maxSize)
	return nil
}

// start runs a command several times, and returns the least time.
func start(ctx context.Context, command []string) (least spent, err error) {
	const starts = 20
	for range starts {
		begin := time.Now()
		if err := exec.CommandContext(ctx, command[0], command[1:]...).Run(); err != nil { //nolint:gosec // a program that is measured
			return spent{}, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
		}
		least.keepLeast(spent{time: time.Since(begin)})
	}
	return least, nil
}

// inRegistry makes an empty registry with TLS and an empty folder, calls a function, and removes
// the registry and the folder.
func (l *lab) inRegistry(ctx context.Context, call func() error) (err error) {
	if l.dir, err = os.MkdirTemp("", "lanyard-bench-artifacts-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	logrus.SetOutput(io.Discard)
	config := &configuration.Configuration{Storage: configuration.Storage{
		"filesystem":  configuration.Parameters{"rootdirectory": filepath.Join(l.dir, "registry")},
		"maintenance": configuration.Parameters{"uploadpurging": map[any]any{"enabled": false}},
		"tag":         configuration.Parameters{"concurrencylimit": 8},
	}}
	config.HTTP.Secret = "for one measurement"
	config.Log.AccessLog.Disabled = true
	server := httptest.NewUnstartedServer(handlers.NewApp(ctx, config))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // tools may end connections early, which is no error
	server.StartTLS()
	defer server.Close()
	l.host = strings.TrimPrefix(server.URL, "https://")
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(l.roots(), trusted, 0o600); err != nil {
		return err
	}
	return call()
}

// roots is the file of the certificates that the tools trust.
func (l *lab) roots() string { return filepath.Join(l.dir, "roots.pem") }

// pushAndPull measures how each tool pushes and pulls the same content.
func (l *lab) pushAndPull(ctx context.Context, c content) error {
	source := filepath.Join(l.dir, "source")
	if err := c.write(source); err != nil {
		return err
	}
	var pushed, pulled [len(tools)]spent
	for run := range l.runs {
		for i, tool := range tools {
			var push, pull spent
			for n := range c.times {
				reference := fmt.Sprintf("%s/%s/%d:%d", l.host, tool, run, n)
				if err := l.spend(ctx, &push, tool, "push", reference, source); err != nil {
					return err
				}
				target := filepath.Join(l.dir, "target")
				if err := os.Mkdir(target, 0o700); err != nil {
					return err
				}
				if err := l.spend(ctx, &pull, tool, "pull", reference, target); err != nil {
					return err
				}
				if err := os.RemoveAll(target); err != nil {
					return err
				}
			}
			pushed[i].keepLeast(push)
			pulled[i].keepLeast(pull)
			if err := os.RemoveAll(filepath.Join(l.dir, "registry", "docker", "registry", "v2", "blobs")); err != nil {
				return err
			}
		}
	}
	l.rows("push, "+c.name, pushed[:], "as fast as both", min(pushed[1].time, pushed[2].time))
	l.rows("pull, "+c.name, pulled[:], "as fast as both", min(pulled[1].time, pulled[2].time))
	return nil
}

// write fills a folder with the content: text that compresses to about a third of its size.
func (c content) write(folder string) error {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // content, not a secret
	words := make([]string, 4096)
	for i := range words {
		words[i] = fmt.Sprintf("%x: %x\n", random.Uint32(), random.Uint64())
	}
	size := c.bytes / int64(c.files)
	for i := range c.files {
		path := filepath.Join(folder, fmt.Sprintf("%03d", i/100), fmt.Sprintf("%05d.yaml", i))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		file, err := os.Create(path) //nolint:gosec // a temporary folder
		if err != nil {
			return err
		}
		var block strings.Builder
		for left := size; left > 0; left -= int64(block.Len()) {
			block.Reset()
			for block.Len() < int(min(left, 1<<20)) {
				block.WriteString(words[random.IntN(len(words))])
			}
			if _, err := io.WriteString(file, block.String()[:min(left, int64(block.Len()))]); err != nil {
				return errors.Join(err, file.Close())
			}
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// spend runs a tool in a process. It adds the process's times to the measurement, and raises the
// measurement's peak memory if the process used more.
func (l *lab) spend(ctx context.Context, to *spent, tool, verb, reference, folder string) error {
	cmd := exec.CommandContext(ctx, l.self, tool, verb, reference, folder) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), "TMPDIR="+l.dir, "HOME="+l.dir, "SSL_CERT_FILE="+l.roots(), "SSL_CERT_DIR="+l.dir)
	begin := time.Now()
	text, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", tool, verb, err, text)
	}
	to.time += time.Since(begin)
	to.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return errors.New("the system does not say how much memory a process used")
	}
	to.memory = max(to.memory, usage.Maxrss<<10) // Linux counts KiB
	return nil
}

// keepLeast sets each value of s to the lesser of the values in s and in other. A zero in s means
// that there is no value yet.
func (s *spent) keepLeast(other spent) {
	if s.time == 0 || other.time < s.time {
		s.time = other.time
	}
	if s.cpu == 0 || other.cpu < s.cpu {
		s.cpu = other.cpu
	}
	if s.memory == 0 || other.memory < s.memory {
		s.memory = other.memory
	}
}

// rows writes three rows for a case: time, processor time and memory. The time of one tool varies
// by a twentieth between runs. So Lanyard reaches the target for the time if it exceeds best by at
// most a twentieth. The processor time has no target.
func (l *lab) rows(name string, all []spent, target string, best time.Duration) {
	l.row(name, all, func(s spent) string { return fmt.Sprintf("%.3f s", s.time.Seconds()) }, target, all[0].time <= best+best/20)
	l.cells(name+", CPU", all, func(s spent) string { return fmt.Sprintf("%.2f s", s.cpu.Seconds()) }, "-", "-")
	l.row(name+", memory", all, func(s spent) string { return fmt.Sprintf("%d MiB", s.memory>>20) }, "< 100 MiB", all[0].memory < maxMemory)
}

// row writes one measurement of a case, and whether our value reaches the target.
func (l *lab) row(name string, all []spent, text func(spent) string, target string, reached bool) {
	l.cells(name, all, text, target, map[bool]string{true: "yes", false: "NO"}[reached])
}

func (l *lab) cells(name string, all []spent, text func(spent) string, target, reached string) {
	cells := []string{name}
	for _, s := range all {
		if s.time == 0 {
			cells = append(cells, "-")
			continue
		}
		cells = append(cells, text(s))
	}
	cells = append(cells, target, reached)
	_, _ = fmt.Fprintln(l.out, strings.Join(cells, "\t"))
}

// list measures how long Lanyard and ORAS take to list the tags of a repository. It leaves out
// Flux, whose library requests the manifest of each tag, which would take minutes.
func (l *lab) list(ctx context.Context) error {
	source := filepath.Join(l.dir, "source")
	if err := (content{files: 1, bytes: 10}).write(source); err != nil {
		return err
	}
	reference := l.host + "/many:first"
	if err := l.spend(ctx, &spent{}, tools[0], "push", reference, source); err != nil {
		return err
	}
	tags := filepath.Join(l.dir, "registry", "docker", "registry", "v2", "repositories", "many", "_manifests", "tags")
	link, err := os.ReadFile(filepath.Join(tags, "first", "current", "link")) //nolint:gosec // the registry's own file
	if err != nil {
		return err
	}
	for n := range l.tags - 1 {
		current := filepath.Join(tags, fmt.Sprintf("1.%d.%d", n/100, n%100), "current")
		if err := os.MkdirAll(current, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(current, "link"), link, 0o600); err != nil { //nolint:gosec // a temporary folder
			return err
		}
	}
	var took [len(tools)]spent
	for range l.runs {
		for i, tool := range tools {
			if tool == "flux" {
				continue
			}
			var once spent
			if err := l.spend(ctx, &once, tool, "list", reference, source); err != nil {
				return err
			}
			took[i].keepLeast(once)
		}
	}
	l.rows(fmt.Sprintf("list of %d tags by version", l.tags), took[:], "as fast as ORAS", took[2].time)
	return nil
}
