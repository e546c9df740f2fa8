// Package sandbox runs code that reads hostile input in child processes that may do almost nothing.
//
// A child is the same program, started with other arguments ([Command]). A [Pool] starts the
// children. The program's main function calls [Serve] in a child. A child takes a request, which is
// bytes, calls a function with the request, and sends back the answer, which is bytes too.
//
// # What a child may do
//
// A child has its parent's user ID, so the kernel must take everything else away. Before a child
// reads its first request:
//
//   - A seccomp filter refuses all system calls but about thirty. These are for memory, time, and
//     for reading and writing open files. So a child cannot open a file, connect, start a program or
//     a thread, send a signal, trace a process, or read the memory of another process.
//   - Landlock refuses all files and ports, if the kernel has Landlock. This is a second wall.
//   - Limits of the kernel bound the child's memory, its processor time and its files.
//   - The child has no environment but one setting of Go's runtime. It can read no open file but
//     its requests.
//
// A child has several threads. So hostile code in a child may use several processors at once, until
// its processor time is used up. Between two requests, a child is stopped.
//
// If the filter cannot be installed, or does not work, the child refuses to serve and nothing is
// run. The filter needs Linux on amd64 or arm64.
//
// The parent should call [Protect]: then no process of the same user can read the parent's memory,
// even without a filter.
//
// # Who shares a child
//
// A child serves one tenant. It may serve several requests of this tenant, one after the other,
// because the start of a process costs more than most requests. The caller says which requests need
// a child of their own ([Request.Alone]).
package sandbox
