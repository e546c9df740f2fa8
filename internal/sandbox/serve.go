package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

// childArgument is the first argument of a child.
const childArgument = "sandboxed-child"

// runtimeMemory is the part of a child's memory that Go's runtime maps for itself, in bytes. Most of
// this part is never used, but it counts for the limit.
const runtimeMemory = 80 << 20

// maxStack bounds each stack of a child, in bytes. Honest input needs a few KiB for each level of
// its nesting.
const maxStack = 32 << 20

// limits are what the kernel allows a child.
type limits struct {
	memory uint64        // private memory in bytes
	time   time.Duration // processor time of all threads, rounded up to seconds
	input  int64         // length of a request in bytes
}

// arguments returns the arguments that tell a child its limits.
func (l limits) arguments() []string {
	return []string{childArgument, strconv.FormatUint(l.memory, 10), l.time.String(), strconv.FormatInt(l.input, 10)}
}

// parseLimits is the inverse of arguments.
func parseLimits(args []string) (limits, error) {
	if !IsChild(args) || len(args) != 4 {
		return limits{}, errors.New("this process is not a child of a sandbox")
	}
	memory, err := strconv.ParseUint(args[1], 10, 63)
	if err != nil {
		return limits{}, fmt.Errorf("memory: %w", err)
	}
	processor, err := time.ParseDuration(args[2])
	if err != nil {
		return limits{}, fmt.Errorf("time: %w", err)
	}
	if memory <= runtimeMemory {
		return limits{}, fmt.Errorf("a child needs more than %d MiB of memory", runtimeMemory>>20)
	}
	input, err := strconv.ParseInt(args[3], 10, 64)
	if err != nil {
		return limits{}, fmt.Errorf("input: %w", err)
	}
	return limits{memory: memory, time: processor, input: input}, nil
}

// IsChild reports whether this process is a child. The arguments are those of the process, without
// the program's name. The main function asks IsChild before it does anything else.
func IsChild(args []string) bool { return len(args) > 0 && args[0] == childArgument }

// Functions are what a child can do. The keys are the names that requests use. A request without a
// name gets an empty answer ([Pool.Check]), unless there is a function for it.
type Functions map[string]func(ctx context.Context, request []byte) (answer []byte)

// call answers a request: the function's name, a zero byte, and the content of the request. It returns
// an error if the function does not exist.
func (f Functions) call(ctx context.Context, request []byte) ([]byte, error) {
	name, content, _ := bytes.Cut(request, []byte{0})
	function := f[string(name)]
	switch {
	case function != nil:
		return function(ctx, content), nil
	case len(name) == 0:
		return nil, nil
	default:
		return nil, fmt.Errorf("this program has no function %q", name)
	}
}

// Serve gives up the rights of this process. Then it answers the requests of the parent until the
// parent closes the pipe. The parent gets what the function returns. If the function panics, the
// process ends, and the parent gets an [*Error] with [ReasonCrash].
//
// The arguments are those of the process, without the program's name. Serve must be called before
// the process has read any foreign input.
func Serve(ctx context.Context, args []string, functions Functions) error {
	allowed, err := parseLimits(args)
	if err != nil {
		return err
	}
	// The limit makes the runtime collect garbage only when the memory is almost used up. Most
	// requests need no collection at all.
	debug.SetGCPercent(-1)
	heap := allowed.memory - runtimeMemory
	debug.SetMemoryLimit(int64(heap) * 3 / 4) //nolint:gosec // parseLimits allows 63 bits
	debug.SetMaxStack(maxStack)
	runtime.GOMAXPROCS(1)
	// Only the runtime's last words go to the parent: the runtime does not use os.Stderr. Libraries
	// write warnings there, which may have content of requests.
	stderr := os.Stderr
	defer runtime.KeepAlive(stderr) // otherwise its finalizer closes the pipe
	if os.Stderr, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
		return fmt.Errorf("leave warnings out: %w", err)
	}
	if err := confine(allowed); err != nil {
		refusal := []byte(err.Error())
		return errors.Join(err, writeFrame(os.Stdout, refusal[:min(len(refusal), maxRefusal)]))
	}
	if err := writeFrame(os.Stdout); err != nil {
		return fmt.Errorf("tell the parent: %w", err)
	}
	for {
		request, err := readFrame(os.Stdin, allowed.input)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		answer, err := functions.call(ctx, request)
		if err != nil {
			return err
		}
		if err := writeFrame(os.Stdout, answer); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
		if isUsedUp(heap) {
			return nil // the parent starts another child for the next request
		}
	}
}

// isUsedUp prepares the memory for the next request. It reports whether too little memory is left.
// Memory that the runtime has mapped counts for the child's limit for ever, even if it is free.
func isUsedUp(heap uint64) bool {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	if memory.HeapAlloc > heap/8 {
		runtime.GC()
	}
	return memory.HeapSys > heap/2
}
