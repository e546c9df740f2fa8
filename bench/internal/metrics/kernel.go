package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Kernel has the kernel's figures of a process.
type Kernel struct {
	Resident float64       // bytes of resident memory at the time of the reading
	Peak     float64       // highest number of such bytes until then
	CPU      time.Duration // user and system time since the start, with children that have ended
}

// ReadTree reads the figures of a running process and of its running children together. The peak is
// the sum of all peaks, which the processes need not have reached at the same time.
func ReadTree(pid int) (Kernel, error) {
	sum, err := ReadKernel(pid)
	if err != nil {
		return sum, err
	}
	lists, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	if err != nil {
		return sum, err
	}
	for _, list := range lists {
		children, err := os.ReadFile(list) //nolint:gosec // below /proc
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(children)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return sum, err
			}
			k, err := ReadKernel(child)
			if err != nil {
				continue // the child has ended
			}
			sum.CPU, sum.Resident, sum.Peak = sum.CPU+k.CPU, sum.Resident+k.Resident, sum.Peak+k.Peak
		}
	}
	return sum, nil
}

// ReadKernel reads the figures of a running process. ReadKernel needs Linux.
func ReadKernel(pid int) (k Kernel, err error) {
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(folder, "stat")) //nolint:gosec // below /proc
	if err != nil {
		return k, err
	}
	status, err := os.ReadFile(filepath.Join(folder, "status")) //nolint:gosec // below /proc
	if err != nil {
		return k, err
	}
	if k.CPU, err = parseCPU(string(stat)); err != nil {
		return k, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	if k.Resident, err = parseMemory(string(status), "VmRSS"); err != nil {
		return k, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	if k.Peak, err = parseMemory(string(status), "VmHWM"); err != nil {
		return k, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return k, nil
}

// parseCPU adds up utime, stime, cutime and cstime of a file stat. proc_pid_stat(5) describes the
// fields.
func parseCPU(stat string) (time.Duration, error) {
	const (
		tick  = time.Second / 100 // USER_HZ is 100 on all usual platforms
		utime = 11                // index after the program's name, which may contain spaces
	)
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < utime+4 {
		return 0, fmt.Errorf("the file stat has only %d fields", len(fields))
	}
	total := time.Duration(0)
	for _, field := range fields[utime : utime+4] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		total += time.Duration(ticks) * tick
	}
	return total, nil
}

// parseMemory returns a field of a file status in bytes.
func parseMemory(status, name string) (float64, error) {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			kibi, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			return kibi * 1024, err
		}
	}
	return 0, fmt.Errorf("the file status has no field %s", name)
}
