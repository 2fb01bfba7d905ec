package streamable

// kind is what a frame is, as far as an exchange must know: whether it is over.
type kind uint8

const (
	notJSON    kind = iota // no JSON object, or one that nests too deeply
	unfinished             // the beginning of one
	other                  // an object that is no answer
	misfit                 // one that names a request, and answers it as no message can
	result                 // a JSON-RPC response with a result
	failure                // a JSON-RPC response with an error
)

func (k kind) answers() bool { return k >= result }

// members are those of a message's members that say what it is.
type members struct {
	version, method, result, failure bool
	null                             bool // the result is
	odd                              bool // a version or a method is no string, whatever follows
	id                               []byte
}

func (m *members) kind() kind {
	named := len(m.id) > 0 && string(m.id) != "null"
	switch {
	case m.method:
		return other
	case !m.version || m.odd:
		if named {
			return misfit
		}
		return other
	case m.failure && m.result && !m.null:
		return misfit
	case m.failure:
		return failure
	case m.result:
		return result
	case named:
		return misfit
	}
	return other
}

func (m *members) take(key, value []byte) {
	null := string(value) == "null"
	switch string(key) {
	case "jsonrpc":
		m.version = string(value) == `"2.0"`
		m.odd = m.odd || value[0] != '"' && !null
	case "id":
		m.id = value
	case "method":
		m.method = !null
		m.odd = m.odd || value[0] != '"' && !null
	case "result":
		m.result, m.null = true, null
	case "error":
		m.failure = !null
	}
}

// unreadable reports whether a value that is no JSON, such as a NaN, makes an answer
// unreadable to which nothing better will follow.
func (m *members) unreadable(key []byte) bool {
	named := len(m.id) > 0 && string(m.id) != "null"
	return named && m.version && !m.method && (string(key) == "result" || string(key) == "error")
}

// classify says what a frame is, and the text of the id it names, "" for none. An
// answer ends its exchange, so that it has to be JSON throughout: whoever receives
// it can't say any more that it was none.
func classify(frame []byte) (k kind, id []byte) {
	var m members
	i, at := open(frame)
	for at == inside {
		var key, value []byte
		if key, i, at = member(frame, i); at == inside {
			from := i
			if i, at = skipValue(frame, i); at == inside {
				value = frame[from:i]
				m.take(key, value)
				i, at = next(frame, i)
			} else if at == wrong && m.unreadable(key) {
				return misfit, m.id
			}
		}
	}
	switch at {
	case cut:
		return unfinished, nil
	case closed:
		if space(frame, i) == len(frame) {
			return m.kind(), m.id
		}
	}
	return notJSON, nil
}

// open steps into an object, whose first member begins at i.
func open(b []byte) (i int, at where) {
	if i = space(b, 0); i == len(b) {
		return i, cut
	}
	if b[i] != '{' {
		return i, wrong
	}
	if i = space(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1, closed
	}
	return i, inside
}

// member steps over a name and its colon, to where the value begins.
func member(b []byte, i int) (key []byte, value int, at where) {
	if i = space(b, i); i == len(b) {
		return nil, i, cut
	}
	if b[i] != '"' {
		return nil, i, wrong
	}
	end, at := skipString(b, i)
	if at != inside {
		return nil, i, at
	}
	key = b[i+1 : end-1]
	if i = space(b, end); i == len(b) {
		return nil, i, cut
	}
	if b[i] != ':' {
		return nil, i, wrong
	}
	return key, space(b, i+1), inside
}

// next steps over the comma after a value, or out of the object.
func next(b []byte, i int) (int, where) {
	if i = space(b, i); i == len(b) {
		return i, cut
	}
	switch b[i] {
	case ',':
		return i + 1, inside
	case '}':
		return i + 1, closed
	}
	return i, wrong
}
