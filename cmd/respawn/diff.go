package main

import (
	"slices"
	"strings"
)

// around is how many equal lines are shown on each side of a difference: enough
// to find the place in a table, as in other diffs.
const around = 2

// diff compares two texts line by line by their longest common subsequence. The
// texts are generated blocks of at most a few hundred lines, so the quadratic
// table is small. Removed lines start with -, added ones with +, equal ones with
// a space; "…" stands for equal lines that are left out.
func diff(have, want string) string {
	lines := script(slices.Collect(strings.Lines(have)), slices.Collect(strings.Lines(want)))
	show := make([]bool, len(lines))
	for i, l := range lines {
		if l[0] != ' ' {
			for j := max(0, i-around); j <= min(len(lines)-1, i+around); j++ {
				show[j] = true
			}
		}
	}
	var b strings.Builder
	for i, l := range lines {
		switch {
		case show[i]:
			b.WriteString(strings.TrimRight(l, "\r\n") + "\n")
		case i == 0 || show[i-1]:
			b.WriteString("…\n")
		}
	}
	return b.String()
}

// script lists all lines of both texts, each with its mark in front.
func script(a, b []string) []string {
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			out = append(out, " "+a[i])
			i, j = i+1, j+1
		case common[i+1][j] >= common[i][j+1]:
			out = append(out, "-"+a[i])
			i++
		default:
			out = append(out, "+"+b[j])
			j++
		}
	}
	for ; i < len(a); i++ {
		out = append(out, "-"+a[i])
	}
	for ; j < len(b); j++ {
		out = append(out, "+"+b[j])
	}
	return out
}
