package transports

import (
	"strconv"
	"strings"
)

// SameID reports whether an answer with the id got may be the answer to a request
// with the id want, where no other request could be meant, as on an exchange of its
// own. No id, null, 0 and the same integer in another spelling are defects of peers
// that answered.
func SameID(got []byte, want string) bool {
	switch text := string(got); text {
	case want, "", "null", "0":
		return true
	default:
		loose := LooseID(got)
		return want == "" || loose != "" && (loose == want || loose == LooseID([]byte(want)))
	}
}

// LooseID rewrites an id that some servers echo in another type ("5", 5.0, 5e0
// for 5) as the integer it means, or returns "".
func LooseID(raw []byte) string {
	text := string(raw)
	if s, err := strconv.Unquote(text); err == nil {
		text = s
	}
	if text == "" || !isDigit(rune(text[0])) || strings.ContainsFunc(text, notOfANumber) {
		return "" // ParseFloat reads more than JSON has numbers for
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < 0 || f >= 1<<53 || f != float64(uint64(f)) {
		return ""
	}
	return strconv.FormatUint(uint64(f), 10)
}

func isDigit(r rune) bool { return '0' <= r && r <= '9' }

func notOfANumber(r rune) bool { return !isDigit(r) && !strings.ContainsRune(".eE+-", r) }
