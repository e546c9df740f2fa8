package archive

import "strings"

// What a Matcher may cost, in steps: comparisons of a byte or of a pattern with a path element. Each path adds to the
// allowance, so that it is their average that counts.
const (
	// firstSteps is 32 million, some tenths of a second.
	firstSteps = 32 << 20
	// stepsPerPath is 8192: 500 patterns take one or two thousand steps for each folder of a path that is not the last path's, and for
	// its file. DefaultMaxFiles of them are about two seconds, less than what the archive's compression takes.
	stepsPerPath = 8 << 10
)

// Matcher tells for path after path whether patterns leave it out. It remembers the folders of the last path, so that a
// folder is matched once and not for each file, if what it holds comes together. It serves one archive, and one goroutine.
type Matcher struct {
	list    []pattern
	left    int     // steps
	folders []level // of the last path, from the root
}

// level is a folder on the way to a path.
type level struct {
	name string
	// decided is one more than the index of the last pattern that matches the folder or one above it, 0 for none. Patterns
	// before it have no say below.
	decided int
	// states are, for each pattern from decided on, where in its segments a path below may go on; see pattern.next.
	states []uint64
}

// Matcher begins with an archive.
func (p Patterns) Matcher() *Matcher { return &Matcher{list: p.list, left: firstSteps} }

// Excludes reports whether the clean path name is left out. A directory's own exclusion is its entry's; what it holds is
// asked for separately. The error is an *Error with ReasonPattern: the patterns take too long for these paths.
func (m *Matcher) Excludes(name string, isDir bool) (bool, error) {
	if len(m.list) == 0 {
		return false, nil
	}
	if m.left < 0 {
		return false, tooManySteps()
	}
	m.left += stepsPerPath
	parent, last := "", name
	if at := strings.LastIndexByte(name, '/'); at >= 0 {
		parent, last = name[:at], name[at+1:]
	}
	folder := m.enter(parent)
	if isDir {
		folder = m.descend(folder, last)
	}
	decided := folder.decided
	if !isDir {
		decided = m.file(folder, last)
	}
	if m.left < 0 {
		return false, tooManySteps()
	}
	return decided > 0 && !m.list[decided-1].negated, nil
}

func tooManySteps() *Error {
	return refuse(ReasonPattern, "", "write fewer or simpler patterns", "the patterns of spec.ignore take too long to match with these paths")
}

// enter goes to a folder from that of the last path.
func (m *Matcher) enter(dir string) level {
	at := level{} // the archive itself, which no pattern matches
	depth := 0
	for dir != "" && m.left >= 0 {
		name, rest, _ := strings.Cut(dir, "/")
		if depth < len(m.folders) && m.folders[depth].name == name {
			at = m.folders[depth]
		} else {
			m.folders = m.folders[:depth]
			at = m.descend(at, name)
			m.folders = append(m.folders, at)
		}
		dir = rest
		depth++
	}
	return at
}

// state is where the pattern may go on in a folder.
func (m *Matcher) state(folder level, at int) uint64 {
	if folder.states == nil { // the root
		return m.list[at].first
	}
	return folder.states[at-folder.decided]
}

// descend goes into a folder of a folder. The last pattern decides: those before one that matches are not asked.
func (m *Matcher) descend(above level, name string) level {
	below := level{name: name, decided: above.decided}
	states := make([]uint64, len(m.list)-above.decided)
	for at := len(m.list) - 1; at >= above.decided; at-- {
		state, matches := m.list[at].next(m.state(above, at), name, &m.left)
		states[at-above.decided] = state
		if matches {
			below.decided = at + 1
			break
		}
	}
	below.states = states[below.decided-above.decided:]
	return below
}

// file is what is decided of a file in a folder.
func (m *Matcher) file(folder level, name string) int {
	for at := len(m.list) - 1; at >= folder.decided; at-- {
		if m.list[at].dirOnly {
			continue
		}
		if _, matches := m.list[at].next(m.state(folder, at), name, &m.left); matches {
			return at + 1
		}
	}
	return folder.decided
}
