package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// Protect makes the memory of this process unreadable for other processes of the same user, and
// forbids them to trace it. The process leaves no core dumps any more. Source: prctl(2),
// PR_SET_DUMPABLE.
func Protect() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid to read the memory of this process: %w", err)
	}
	return nil
}

// confine gives up all rights of this process but those of the package comment.
func confine(allowed limits) error {
	// The filter needs a flag of the thread that installs it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := Protect(); err != nil {
		return err
	}
	makeThreads()
	if err := limit(allowed); err != nil {
		return err
	}
	// BestEffort gives up what this kernel's Landlock knows. It does nothing without Landlock.
	if err := landlock.V6.BestEffort().Restrict(); err != nil {
		return fmt.Errorf("give up files and ports with Landlock: %w", err)
	}
	policy, err := allowList()
	if err != nil {
		return err
	}
	// FilterFlagTSync installs the filter in all threads of the process, or fails.
	if err := seccomp.LoadFilter(seccomp.Filter{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync, Policy: policy}); err != nil {
		return fmt.Errorf("install the seccomp filter: %w", err)
	}
	return check()
}

// spareThreads is how many threads a child makes before it may make none any more. Go's runtime
// needs a thread for each system call that waits, one that computes, and one that watches. A child
// has one system call that waits, to its parent.
const spareThreads = 6

// makeThreads makes the spareThreads. Go's runtime keeps threads that have nothing to do.
func makeThreads() {
	var waiting sync.WaitGroup
	for range spareThreads {
		waiting.Go(func() {
			// A system call that waits, so that the runtime gives the other goroutines new threads.
			pause := unix.NsecToTimespec(int64(5 * time.Millisecond))
			_ = unix.Nanosleep(&pause, nil)
		})
	}
	waiting.Wait()
}

// limit sets the limits of the kernel for this process. A process without privileges cannot raise
// them again. Source: getrlimit(2).
func limit(allowed limits) error {
	seconds := uint64(allowed.time.Seconds()) + 1
	for _, l := range []struct {
		name     string
		resource int
		value    uint64
	}{
		{"memory", unix.RLIMIT_DATA, allowed.memory},
		{"processor time", unix.RLIMIT_CPU, seconds},
		{"stack", unix.RLIMIT_STACK, 8 << 20}, // of the first thread; RLIMIT_DATA does not count it
		{"file size", unix.RLIMIT_FSIZE, 0},
		{"open files", unix.RLIMIT_NOFILE, 16},
		{"core dump", unix.RLIMIT_CORE, 0},
		{"locked memory", unix.RLIMIT_MEMLOCK, 0},
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.value, Max: l.value}); err != nil {
			return fmt.Errorf("limit the %s: %w", l.name, err)
		}
	}
	return nil
}

// allowList returns the policy of the seccomp filter. Any other system call fails with EPERM, which
// is the errno of ActionErrno. The allowed ones are those that Go's runtime needs to compute, and to read and write open files.
func allowList() (seccomp.Policy, error) {
	machine, err := arch.GetInfo("")
	if err != nil {
		return seccomp.Policy{}, fmt.Errorf("seccomp on this processor: %w", err)
	}
	calls := []string{
		"read", "write", "close", // the pipes
		"munmap",                                                                              // memory; see below for mmap
		"futex", "sched_yield", "gettid", "getpid", "sched_getaffinity", "exit", "exit_group", // threads
		"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall", // its own signals
		"nanosleep", "clock_nanosleep", "clock_gettime", // time
		"epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait", "eventfd2", // the runtime's poller
		"getrandom",
		"arch_prctl", // amd64: the thread's own register for its local storage
	}
	// Names that the processor's kernel does not have: arm64 has no epoll_wait and no arch_prctl.
	calls = slices.DeleteFunc(calls, func(name string) bool { _, known := machine.SyscallNames[name]; return !known })
	uncounted := bitsClear(3, unix.MAP_SHARED|unix.MAP_GROWSDOWN)
	conditional := []seccomp.NameWithConditions{
		// RLIMIT_DATA counts private memory that can be written, and nothing else. So there is no
		// shared memory, no stack, and no memory that can only be read. A mapping without any
		// access has no memory; the runtime reserves addresses with such mappings. No call changes
		// the access of a mapping: memory that can only be read would not be counted any more.
		only("mmap", equal(2, unix.PROT_NONE), uncounted),
		only("mmap", equal(2, unix.PROT_READ|unix.PROT_WRITE), uncounted),
		// The advice that the runtime gives. Newer kinds of advice need memory of the kernel.
		only("madvise", seccomp.Condition{Argument: 2, Operation: seccomp.LessOrEqual, Value: unix.MADV_COLLAPSE}),
		// Signals to the process's own threads: the runtime interrupts a thread that runs long.
		only("tgkill", equal(0, uint64(os.Getpid()))), //nolint:gosec // a process ID is positive
	}
	return seccomp.Policy{
		DefaultAction: seccomp.ActionErrno,
		Syscalls:      []seccomp.SyscallGroup{{Action: seccomp.ActionAllow, Names: calls, NamesWithCondtions: conditional}},
	}, nil
}

// only allows a system call if all conditions hold. If a system call has several such entries, one
// of the entries must hold.
func only(name string, conditions ...seccomp.Condition) seccomp.NameWithConditions {
	return seccomp.NameWithConditions{Name: name, Conditions: conditions}
}

// equal is true if an argument of a system call has a value.
func equal(argument uint32, value uint64) seccomp.Condition {
	return seccomp.Condition{Argument: argument, Operation: seccomp.Equal, Value: value}
}

// bitsClear is true if no bit of the mask is set in an argument of a system call.
func bitsClear(argument uint32, mask uint64) seccomp.Condition {
	return seccomp.Condition{Argument: argument, Operation: seccomp.BitsNotSet, Value: mask}
}

// check tries what the filter must refuse. So a kernel that accepts the filter and ignores it is
// noticed.
func check() error {
	if fd, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the seccomp filter does not work: open returned %d, %w", fd, err)
	}
	if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("the seccomp filter does not work: socket returned %d, %w", fd, err)
	}
	return nil
}
