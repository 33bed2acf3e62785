// The browser's end of a cell's channel: the inspector finds this element by its class, and speaks through its model.
export default { render({ model, el }) { el.kvlabLine = model; } };
