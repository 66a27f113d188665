"""The study of how much of its time a training computes, by method, link and transport.

cells     the methods, the links, and what is run of each
model     what has been published: the same over a link that only has a rate and a delay
stored    the stored run, from which everything else is made
tables    it as Markdown
picture   it as a picture
"""
