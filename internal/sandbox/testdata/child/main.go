// Command child is a child of the tests: it does what the request says, and tells the result.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lanyard-dev/lanyard/internal/sandbox"
)

func main() {
	if !sandbox.IsChild(os.Args[1:]) {
		fmt.Fprintln(os.Stderr, "this program is a child of the tests")
		os.Exit(2)
	}
	served := 0
	act := func(_ context.Context, request []byte) []byte {
		served++
		return handle(string(request), served)
	}
	other := func(context.Context, []byte) []byte { return []byte("another function") }
	err := sandbox.Serve(context.Background(), os.Args[1:], sandbox.Functions{"": act, "other": other})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sink keeps the compiler from leaving work out.
var sink [][]byte

func handle(request string, served int) []byte {
	verb, argument, _ := strings.Cut(request, " ")
	switch verb {
	case "echo":
		return []byte(argument)
	case "early", "":
		return nil
	case "served":
		return fmt.Append(nil, os.Getpid(), " ", served)
	case "sleep":
		pause, _ := time.ParseDuration(argument)
		time.Sleep(pause)
		return []byte("slept")
	case "loop":
		for {
			sink = nil
		}
	case "allocate":
		for {
			sink = append(sink, bytes.Repeat([]byte{1}, 1<<20))
		}
	case "nest":
		return fmt.Append(nil, nest(1))
	case "long":
		return make([]byte, 64<<20)
	case "exit":
		os.Exit(3)
	case "panic":
		panic(argument)
	case "once":
		if served > 1 {
			os.Exit(3)
		}
		return fmt.Append(nil, served)
	case "burn":
		go func() {
			for {
				sink = nil
			}
		}()
		return []byte(strconv.Itoa(os.Getpid()))
	case "garbage":
		sink = nil
		for range 4 {
			sink = append(sink, bytes.Repeat([]byte{1}, 1<<20))
		}
		sink = nil
		return []byte("done")
	case "fill":
		for range 30 {
			sink = append(sink, bytes.Repeat([]byte{1}, 1<<20))
		}
		sink = nil
		return []byte("filled")
	case "warn":
		// Longer than what the parent keeps.
		fmt.Fprint(os.Stderr, strings.Repeat("warning: ", 10_000))
		syscall.Write(2, bytes.Repeat([]byte("x"), 1<<20))
		return []byte("warned")
	case "keep":
		return []byte(keepMemory(argument))
	case "attacks":
		answer, _ := json.Marshal(attacks(argument))
		return answer
	}
	return []byte("?")
}

func nest(level int) int {
	var room [1 << 10]byte
	room[level%len(room)] = byte(level)
	return nest(level+1) + int(room[(level+1)%len(room)])
}

// attacks tries what a child must not be able to do, and returns the errors by name. The argument
// is the path of a file that the child may not read.
func attacks(path string) map[string]string {
	parent := os.Getppid()
	call := func(number uintptr, arguments ...uintptr) error {
		var a [6]uintptr
		copy(a[:], arguments)
		if _, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
			return errno
		}
		return nil
	}
	word := make([]byte, 8)
	page, _ := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	local := unix.Iovec{Base: &word[0], Len: 8}
	remote := unix.RemoteIovec{Base: uintptr(unsafe.Pointer(&word[0])), Len: 8}
	raised := unix.Rlimit{Cur: 1 << 40, Max: 1 << 40}
	texts := map[string]string{}
	texts["descriptors"] = ""
	for fd := 3; fd < 100; fd++ {
		if _, err := unix.Read(fd, word); err == nil {
			texts["descriptors"] += fmt.Sprint(fd, " ")
		}
	}
	found := map[string]error{
		"open a file":                 errorOf(os.ReadFile(path)),
		"make a socket on any thread": onThreads(func() error { return call(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0) }),
		"create a file":               os.WriteFile("/tmp/made-by-a-child", nil, 0o600),
		"list a folder":               errorOf(os.ReadDir("/")),
		"read the parent's memory":    errorOf(os.Open(fmt.Sprintf("/proc/%d/mem", parent))),
		"read the parent's environ":   errorOf(os.ReadFile(fmt.Sprintf("/proc/%d/environ", parent))),
		"dial":                        errorOf(net.Dial("tcp", "127.0.0.1:1")),
		"make a socket":               call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0),
		"resolve a name":              errorOf(net.LookupHost("localhost.example")),
		"run a program":               exec.Command("/bin/true").Run(),
		"new thread":                  call(unix.SYS_CLONE, unix.CLONE_VM|unix.CLONE_FS|unix.CLONE_FILES|unix.CLONE_SIGHAND|unix.CLONE_THREAD),
		"memory of another access":    unix.Mprotect(page, unix.PROT_READ),
		"memory to read only":         errorOf(unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)),
		"memory that grows":           errorOf(unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_GROWSDOWN)),
		"guard pages":                 unix.Madvise(page, 102),
		"thread's registers":          call(158, 0x1001, 0), // arch_prctl on amd64
		"fork":                        call(unix.SYS_CLONE, uintptr(unix.SIGCHLD)),
		"clone3":                      call(unix.SYS_CLONE3, 0, 0),
		"execveat":                    call(unix.SYS_EXECVEAT, 0, 0, 0, 0, 0),
		"trace the parent":            unix.PtraceAttach(parent),
		"copy the parent's memory":    errorOf(unix.ProcessVMReadv(parent, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)),
		"write the parent's memory":   errorOf(unix.ProcessVMWritev(parent, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)),
		"signal the parent":           unix.Kill(parent, 0),
		"signal the parent's thread":  unix.Tgkill(parent, parent, 0),
		"open the parent by number":   errorOf(unix.PidfdOpen(parent, 0)),
		"own a pipe's signals":        errorOf(unix.FcntlInt(0, unix.F_SETOWN, parent)),
		"raise a limit":               unix.Setrlimit(unix.RLIMIT_DATA, &raised),
		"limit the parent":            unix.Prlimit(parent, unix.RLIMIT_DATA, &raised, nil),
		"executable memory":           errorOf(unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)),
		"shared memory":               errorOf(unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)),
		"file in memory":              errorOf(unix.MemfdCreate("x", 0)),
		"new pipe":                    unix.Pipe2(make([]int, 2), 0),
		"own namespace":               unix.Unshare(unix.CLONE_NEWUSER),
		"mount":                       unix.Mount("none", "/", "tmpfs", 0, ""),
		"change the folder":           unix.Chdir("/tmp"),
		"io_uring":                    call(425, 1, 0),
		"bpf":                         call(unix.SYS_BPF, 0, 0, 0),
		"readable again":              unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0),
	}
	for name, err := range found {
		texts[name] = fmt.Sprint(err)
	}
	texts["environment"] = fmt.Sprint(os.Environ())
	for made := 0; ; made++ {
		if _, err := unix.EpollCreate1(0); err != nil {
			texts["new descriptors"] = fmt.Sprint(made, " ", err)
			break
		}
	}
	return texts
}

// onThreads calls a function on the threads that there are. It returns nil if one of the calls did.
func onThreads(call func() error) error {
	const n = 5
	errs := make(chan error, n)
	for range n {
		go func() {
			// While a thread waits in a system call, the next goroutine uses another thread.
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 50e6}, nil)
			errs <- call()
		}()
	}
	var last error
	for range n {
		err := <-errs
		if err == nil {
			return nil
		}
		last = err
	}
	return last
}

// keepMemory uses as much memory as the kernel gives, in one of several ways. It returns its process
// ID: its parent measures the memory.
func keepMemory(way string) string {
	if way == "tables" {
		reserved, _ := unix.MmapPtr(-1, 0, nil, 1<<40, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
		for step := uintptr(0); reserved != nil && step < 1<<37; step += 2 << 20 {
			at := unsafe.Add(reserved, step)
			if _, err := unix.MmapPtr(-1, 0, at, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED); err != nil {
				break
			}
			*(*byte)(at) = 1
			_, _ = unix.MmapPtr(-1, 0, at, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED)
		}
	}
	got := 0
	for ; got < 1024; got += 16 {
		protection, flags := unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON
		if way == "grows" {
			flags |= unix.MAP_GROWSDOWN
		}
		memory, err := unix.Mmap(-1, 0, 16<<20, protection, flags)
		if err != nil {
			break
		}
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		if way == "hidden" {
			_ = unix.Mprotect(memory, unix.PROT_READ)
		}
	}
	return strconv.Itoa(os.Getpid())
}

func errorOf[T any](_ T, err error) error { return err }
