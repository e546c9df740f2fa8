package archive_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// reference reports whether the patterns exclude a path. Tests compare its results with those of
// package archive. It is simple but slow: it tries each pattern on the path and on each of its
// parent folders, with Go's regular expressions.
func reference(patterns, path string, isDir bool) bool {
	parts := strings.Split(path, "/")
	decided := false
	for line := range strings.SplitSeq(".git/\n.gitignore\n.gitmodules\n.gitattributes\n"+patterns, "\n") {
		line = strings.TrimRight(line, "\r")
		for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
			line = strings.TrimSuffix(line, " ")
		}
		rest, negated := strings.CutPrefix(line, "!")
		rest, dirOnly := strings.CutSuffix(rest, "/")
		if rest == "" || strings.HasPrefix(line, "#") {
			continue
		}
		elements := strings.Split(strings.TrimPrefix(rest, "/"), "/")
		if !strings.Contains(rest, "/") {
			if elements[0] == "**" {
				elements[0] = "*" // "**" alone means "*"
			}
			elements = slices.Insert(elements, 0, "**")
		} else if elements[len(elements)-1] == "**" {
			elements = append(elements, "*")
		}
		for n := 1; n <= len(parts); n++ {
			if (n < len(parts) || isDir || !dirOnly) && fits(elements, parts[:n]) {
				decided = !negated
			}
		}
	}
	return decided
}

func fits(elements, parts []string) bool {
	switch {
	case len(elements) == 0:
		return len(parts) == 0
	case elements[0] == "**":
		return fits(elements[1:], parts) || len(parts) > 0 && fits(elements, parts[1:])
	default:
		return len(parts) > 0 && expression(elements[0]).MatchString(parts[0]) && fits(elements[1:], parts[1:])
	}
}

func expression(element string) *regexp.Regexp {
	text := []rune(element)
	out := "(?s)^"
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '*':
			out += ".*"
		case '?':
			out += "."
		case '\\':
			i++
			out += regexp.QuoteMeta(string(text[i]))
		case '[':
			i++
			negated := text[i] == '!' || text[i] == '^'
			if negated {
				i++
			}
			one := func() rune {
				if text[i] == '\\' {
					i++
				}
				i++
				return text[i-1]
			}
			ranges := ""
			for first := true; first || text[i] != ']'; first = false {
				low := one()
				high := low
				if text[i] == '-' && text[i+1] != ']' {
					i++
					high = one()
				}
				if low <= high {
					ranges += fmt.Sprintf(`\x{%x}-\x{%x}`, low, high)
				}
			}
			switch {
			case ranges == "" && negated:
				out += "."
			case ranges == "":
				out += `[^\x{0}-\x{10ffff}]`
			case negated:
				out += "[^" + ranges + "]"
			default:
				out += "[" + ranges + "]"
			}
		default:
			out += regexp.QuoteMeta(string(text[i]))
		}
	}
	return regexp.MustCompile(out + "$")
}
