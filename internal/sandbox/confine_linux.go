package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"

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
	if err := makeThreads(); err != nil {
		return err
	}
	if err := Protect(); err != nil {
		return err
	}
	// A huge page stays in memory as a whole while a small part is mapped, and no limit counts it.
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up huge pages: %w", err)
	}
	// BestEffort gives up what this kernel's Landlock knows. It does nothing without Landlock.
	if err := landlock.V6.BestEffort().Restrict(); err != nil {
		return fmt.Errorf("give up files and ports with Landlock: %w", err)
	}
	// Landlock's library sends a signal to each thread, so limit the signals afterwards.
	if err := limit(allowed); err != nil {
		return err
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
func makeThreads() error {
	var started, done sync.WaitGroup
	started.Add(spareThreads)
	for range spareThreads {
		done.Go(func() {
			runtime.LockOSThread() // each of these goroutines has a thread of its own
			defer runtime.UnlockOSThread()
			started.Done()
			started.Wait()
		})
	}
	done.Wait()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil || len(threads) < spareThreads {
		return fmt.Errorf("the process has %d threads, and needs %d: %w", len(threads), spareThreads, err)
	}
	return nil
}

// reservedAddresses is more than the addresses that Go's runtime and the program need without using
// memory for them, in bytes. The runtime reserves 1.3 GiB.
const reservedAddresses = 2 << 30

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
		// The tables of the kernel for mapped addresses need memory, too.
		{"addresses", unix.RLIMIT_AS, allowed.memory + reservedAddresses},
		{"processor time", unix.RLIMIT_CPU, seconds},
		{"stack", unix.RLIMIT_STACK, 8 << 20}, // of the first thread; RLIMIT_DATA does not count it
		{"file size", unix.RLIMIT_FSIZE, 0},
		{"open files", unix.RLIMIT_NOFILE, 16},
		{"waiting signals", unix.RLIMIT_SIGPENDING, 16},
		{"core dump", unix.RLIMIT_CORE, 0},
		{"locked memory", unix.RLIMIT_MEMLOCK, 0},
	} {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.value, Max: l.value}); err != nil {
			return fmt.Errorf("limit the %s: %w", l.name, err)
		}
	}
	return nil
}

// allowList returns the policy of the seccomp filter. The allowed system calls are those that Go's
// runtime needs to compute, and to read and write open files. Any other system call fails with
// EPERM, which is the errno of ActionErrno.
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
	}
	// The filter refuses names that the processor's kernel does not have: arm64 has no epoll_wait.
	calls = slices.DeleteFunc(calls, func(name string) bool { _, known := machine.SyscallNames[name]; return !known })
	conditional := []seccomp.NameWithConditions{
		// Signals to the process's own threads: the runtime interrupts a thread that runs long.
		only("tgkill", equal(0, uint64(os.Getpid()))), //nolint:gosec // a process ID is positive
	}
	// RLIMIT_DATA counts private memory that can be written, and nothing else. So a mapping has this
	// access, or none. A mapping without access has no memory; the runtime reserves addresses with
	// such mappings. Other flags make stacks and shared memory. No call changes the access of a
	// mapping: memory that can only be read would not be counted any more.
	for _, access := range []uint64{unix.PROT_NONE, unix.PROT_READ | unix.PROT_WRITE} {
		for _, flags := range []uint64{unix.MAP_PRIVATE | unix.MAP_ANON, unix.MAP_PRIVATE | unix.MAP_ANON | unix.MAP_FIXED} {
			conditional = append(conditional, only("mmap", equal(2, access), equal(3, flags)))
		}
	}
	// The advice that the runtime gives. Newer kinds of advice need memory of the kernel.
	for _, advice := range []uint64{unix.MADV_DONTNEED, unix.MADV_FREE, unix.MADV_HUGEPAGE, unix.MADV_NOHUGEPAGE, unix.MADV_COLLAPSE} {
		conditional = append(conditional, only("madvise", equal(2, advice)))
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
