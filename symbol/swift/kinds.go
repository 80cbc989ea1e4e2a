package swift

// kind is the kind of a node. The comment of each kind lists its children, and the
// meaning of text and n.
type kind int

const (
	none       kind = iota
	global          // attributes; entity
	identifier      // text
	operator        // text: with its fixity
	module          // text

	// Names of declarations.
	localName   // name; n: number among equal names
	privateName // the file's, name or nothing
	relatedName // name; text: of what kind

	// Declarations with a context, which is the first child.
	contextsBegin
	extension    // module, type, signature?
	function     // context, name, labels?, type, private name?
	variable     // context, name, labels?, type
	subscript    // context, labels?, type, private name?
	initialiser  // context, labels?, type, private name?; text: name for calls
	special      // context; text: name (deinit and the like)
	closure      // context, type; n; text: closure or implicit closure
	defaultArg   // context; n
	initialValue // context; text: of what kind
	accessor     // the variable or subscript; text: getter and the like
	static       // entity
	anonymous    // context, and its content
	macroUse     // context, names; text: of what kind; n

	// Types.
	nominalsBegin
	class     // context, name
	structure // context, name
	enum      // context, name
	protocol  // context, name
	alias     // context, name
	nominalsEnd
	contextsEnd
	bound         // nominal, arguments in a list
	functionType  // parameters, result, effects in a list; text: its attributes
	tuple         // elements
	metatype      // type; text: its representation
	existMetatype // type; text: its representation
	existential   // protocols; text: prefix
	superclassed  // protocols, class
	constrained   // existential, requirements
	dynamicSelf   // type
	param         // n: index; text: depth in letters is made of d
	member        // type, name, protocol?
	builtin       // text
	wrapped       // type; text: prefix
	dependent     // signature, type
	opaque        // declaration, arguments in a list; n
	opaqueHere    // n
	opaqueOf      // context
	pack          // types
	packElement   // type; n
	expansion     // pattern, count
	implType      // see impl
	boxType       // types
	integer       // text
	typesEnd

	// Parts of function types.
	partsBegin
	emptyList
	first    // the marker of a list's first element
	variadic // the marker of a variadic element
	effect   // type?; text: which
	signature
	requirement // types; text: of what kind
	retroactive // conformance
	conformance // see popConformance
	accessPath  // of a conformance that hangs on parameters
	partsEnd
	element // of a tuple: name?, type; n: variadic
	list    // of types
	labels  // identifiers and first markers
	impl    // text: convention; n: implAttribute to implYield; type
	ofType  // type; text: the derived entity
	ofTypes // types, conformances; text: the derived entity
	witness // conformance, entity; text
	thunkOf // signature?, types; text
	keyPath // entity, types; text
	attribute
	specialised // types; text: how
	respecified // parameters; see specialise
)

func (k kind) isType() bool {
	return k > nominalsBegin && k < typesEnd && k != nominalsEnd && k != contextsEnd
}
func (k kind) isNominal() bool { return k > nominalsBegin && k < nominalsEnd || k == bound }
func (k kind) isContext() bool { return k > contextsBegin && k < contextsEnd || k == bound }
func (k kind) isPart() bool    { return k > partsBegin && k < partsEnd }
func (k kind) isAttribute() bool {
	return k == attribute || k == specialised || k == respecified
}
