package policy

import "strings"

// glob reports whether s matches the pattern. In the pattern, * matches any number of bytes,
// including zero, and ? matches one byte. For every pattern, glob takes linear space and at most
// len(pattern)*len(s) steps.
func glob(pattern, s string) bool {
	p, i := 0, 0
	star, mark := -1, 0 // index of the last *, and the end of its current match in s
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// globARN matches an ARN segment by segment. So a * in the region cannot also match the account. A
// pattern that is only * matches everything. Source: IAM User Guide, "Using wildcards in resource
// ARNs".
func globARN(pattern, arn string) bool {
	if pattern == "*" {
		return true
	}
	p, a := strings.SplitN(pattern, ":", 6), strings.SplitN(arn, ":", 6)
	if len(p) != 6 || len(a) != 6 {
		return false
	}
	for i := range p {
		if !glob(p[i], a[i]) {
			return false
		}
	}
	return true
}
