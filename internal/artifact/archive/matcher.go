package archive

import "strings"

// These bounds limit a Matcher's cost, in steps. A step is a comparison of a byte, or of a pattern
// with a path element. A Matcher begins with firstSteps, and gets stepsPerPath for each path. So
// only the cost of the average path is bounded.
const (
	// firstSteps is the number of steps that a Matcher has at the beginning: some 33 million, which
	// take some tenths of a second.
	firstSteps = 32 << 20
	// stepsPerPath is the number of steps that a Matcher gets for each path: 8192. With 500
	// patterns, a file costs one or two thousand steps. Each of its folders costs as much, unless
	// the previous path was in the same folder. DefaultMaxFiles paths of 8192 steps take about two
	// seconds, less than the compression of the archive.
	stepsPerPath = 8 << 10
)

// Matcher says for each path of an archive whether patterns leave it out. It remembers the folders
// of a recent path. So if the paths of a folder follow each other, the folder is matched only once.
// A Matcher is for one archive and one goroutine.
type Matcher struct {
	list    []pattern
	field   string
	left    int     // remaining steps
	folders []level // folders of a recent path: each is in the one before it
}

// level is one folder of a path, with the patterns' decision about the folder.
type level struct {
	name string
	// decided is 0 if no pattern matches the folder or a parent of it. Otherwise it is one more
	// than the index of the last pattern that matches. Earlier patterns have no effect below the
	// folder.
	decided int
	// states[i] is the state that the pattern with the index decided+i has in this folder. If the
	// pattern is anchored, the state says which beginnings of the pattern match the folder's path.
	// It is a set of bits; see the method state of pattern. states is nil for the archive's root.
	states []uint64
}

// Matcher returns a Matcher for one archive.
func (p Patterns) Matcher() *Matcher { return &Matcher{list: p.list, field: p.field, left: firstSteps} }

// Excludes reports whether a path is left out. The path must be clean. For a directory, the answer
// is only about the directory's own entry; call Excludes for its content too. The error is an
// *Error with ReasonPattern: the patterns take too long for these paths.
func (m *Matcher) Excludes(name string, isDir bool) (bool, error) {
	if len(m.list) == 0 {
		return false, nil
	}
	if m.left < 0 {
		return false, m.tooManySteps()
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
		return false, m.tooManySteps()
	}
	return decided > 0 && !m.list[decided-1].negated, nil
}

func (m *Matcher) tooManySteps() *Error {
	return refuse(ReasonPattern, "", "write fewer or simpler patterns",
		"the patterns of %s take too long to match with these paths", m.field)
}

// enter returns the level of the folder dir. If m.folders and the path dir begin with the same
// folders, enter reuses the levels of these folders.
func (m *Matcher) enter(dir string) level {
	at := level{} // begin at the archive's root, which no pattern matches
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

// state returns the state of the pattern m.list[at] in a folder, for the pattern's method next. If
// the pattern is anchored, the state says which beginnings of the pattern match the folder's path.
func (m *Matcher) state(folder level, at int) uint64 {
	if folder.states == nil { // the root
		return m.list[at].first
	}
	return folder.states[at-folder.decided]
}

// descend returns the level of a folder, given its name and the level of its parent. Of the
// patterns that match a folder, only the last one has an effect. So descend tries the patterns from
// last to first, and stops at a match.
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

// file returns one more than the index of the last pattern that matches the file or a parent of it;
// 0 if no pattern matches.
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
